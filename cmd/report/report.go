package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// Report is what a command found.
type Report struct {
	Objects  int    // number of objects that were judged
	Refusal  string // why a server would not start with them, or empty
	Findings []diag.Diagnostic
	Version  string // of this program
	Color    bool   // lines have colours
}

// Count returns how many findings have a severity.
func (r Report) Count(s diag.Severity) int {
	n := 0
	for _, d := range r.Findings {
		if d.Severity == s {
			n++
		}
	}
	return n
}

// Reaches reports whether a finding is of that severity or a worse one. A Refusal is an error.
func (r Report) Reaches(s diag.Severity) bool {
	return r.Refusal != "" || slices.ContainsFunc(r.Findings, func(d diag.Diagnostic) bool { return d.Severity >= s })
}

// From returns the report without the findings that are less severe.
func (r Report) From(s diag.Severity) Report {
	r.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(d diag.Diagnostic) bool { return d.Severity < s })
	return r
}

// ParseSeverity reads a severity as flags have it.
func ParseSeverity(text string) (diag.Severity, error) {
	for _, s := range []diag.Severity{diag.Info, diag.Warning, diag.Error} {
		if strings.EqualFold(text, s.String()) {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%q is no severity: write Info, Warning or Error", text)
}

// Formats returns the names of the formats, the default first.
func Formats() []string { return []string{"log", "table", "json", "yaml", "sarif", "github"} }

// CheckFormat returns an error for a name that Formats does not have.
func CheckFormat(format string) error {
	if format != "" && !slices.Contains(Formats(), format) {
		return fmt.Errorf("unknown output format %q: write one of %s", format, strings.Join(Formats(), ", "))
	}
	return nil
}

// Write writes the report in a format of Formats; "" is the first.
func (r Report) Write(w io.Writer, format string) error {
	var out []byte
	var err error
	switch format {
	case "", "log":
		out = r.lines()
	case "table":
		out = r.table()
	case "json":
		out, err = indented(r.plain())
	case "yaml":
		out, err = yaml.Marshal(r.plain())
	case "sarif":
		out, err = indented(r.sarif())
	case "github":
		out = r.annotations()
	default:
		err = CheckFormat(format)
	}
	if err != nil {
		return fmt.Errorf("write the findings: %w", err)
	}
	_, err = w.Write(out)
	return err
}

// plain is the report as JSON and YAML have it.
func (r Report) plain() any {
	return struct {
		Objects  int               `json:"objects"`
		Errors   int               `json:"errors"`
		Warnings int               `json:"warnings"`
		Infos    int               `json:"infos"`
		Refusal  string            `json:"refusal,omitempty"` // why a server would not start
		Findings []diag.Diagnostic `json:"findings"`
	}{r.Objects, r.Count(diag.Error), r.Count(diag.Warning), r.Count(diag.Info), r.Refusal, append([]diag.Diagnostic{}, r.Findings...)}
}

func indented(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	return append(text, '\n'), err
}
