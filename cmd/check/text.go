package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/cmd/report"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
)

// Formats returns the names of the output formats. The first is the default.
func Formats() []string { return []string{"table", "wide", "json", "yaml", "name"} }

// TextOptions say how to write a report.
type TextOptions struct {
	Format string // one of Formats; the first if empty
	Short  bool   // without results that are OK or Skipped
	Color  bool
}

// Write writes the report. The format table has one line for each group without problems, and one line for each result
// of other groups. wide has one line for each result, and name has the names of the results that are wrong.
func (r *Report) Write(w io.Writer, o TextOptions) error {
	results := r.Results
	if o.Short {
		results = slices.DeleteFunc(slices.Clone(results), func(x Result) bool { return x.State == OK || x.State == Skipped })
	}
	var out []byte
	var err error
	switch o.Format {
	case "json", "yaml":
		v := struct {
			OK       bool     `json:"ok"`
			Wrong    int      `json:"wrong"`
			Warnings int      `json:"warnings"`
			Checks   []Result `json:"checks"`
		}{!r.Wrong(), r.Count(Wrong), r.Count(Warning), append([]Result{}, results...)}
		if o.Format == "yaml" {
			out, err = yaml.Marshal(v)
		} else if out, err = json.MarshalIndent(v, "", "  "); err == nil {
			out = append(out, '\n')
		}
	case "name":
		for _, x := range results {
			if x.State == Wrong {
				out = append(out, terminal.Plain(x.Group+"/"+x.Name)+"\n"...)
			}
		}
	default:
		out = r.text(results, o)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

func (r *Report) text(results []Result, o TextOptions) []byte {
	var b bytes.Buffer
	width := 0
	for _, x := range results {
		width = max(width, len(x.Group))
	}
	line := func(s State, group, text string) {
		fmt.Fprintf(&b, "%s %-*s  %s\n", o.mark(s), width, group, text)
	}
	for len(results) > 0 {
		end := slices.IndexFunc(results, func(x Result) bool { return x.Group != results[0].Group })
		if end < 0 {
			end = len(results)
		}
		group := results[:end]
		results = results[end:]
		if o.Format != "wide" && !slices.ContainsFunc(group, func(x Result) bool { return x.State != OK }) {
			said := lists.Map(group, plain)
			line(OK, group[0].Group, strings.Join(said, "; "))
			continue
		}
		for i, x := range group {
			head := x.Group
			if i > 0 {
				head = ""
			}
			line(x.State, head, plain(x))
			if x.Fix != "" {
				fmt.Fprintf(&b, "  %-*s  %s\n", width, "", o.paint("→ "+terminal.Plain(x.Fix), "36"))
			}
		}
	}
	switch wrong, warnings := r.Count(Wrong), r.Count(Warning); {
	case wrong > 0:
		fmt.Fprintf(&b, "%s wrong, %s\n", report.Amount(wrong, "check"), report.Amount(warnings, "warning"))
	case warnings > 0:
		fmt.Fprintf(&b, "nothing is wrong, %s\n", report.Amount(warnings, "warning"))
	default:
		fmt.Fprintf(&b, "nothing is wrong: %s\n", report.Amount(r.Count(OK), "check"))
	}
	return b.Bytes()
}

// plain returns a result as one line for a terminal.
func plain(x Result) string {
	text := x.Name
	if x.Detail != "" {
		text += ": " + x.Detail
	}
	return terminal.Plain(text)
}

// mark returns the character of a state.
func (o TextOptions) mark(s State) string {
	mark, color := "✓", "32"
	switch s {
	case Wrong:
		mark, color = "✗", "31"
	case Warning:
		mark, color = "!", "33"
	case Skipped:
		mark, color = "-", "90"
	}
	return o.paint(mark, color)
}

func (o TextOptions) paint(text, color string) string {
	if !o.Color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
