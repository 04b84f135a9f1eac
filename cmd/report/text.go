package report

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
)

// lines writes one line for each finding, and a summary.
func (r Report) lines() []byte {
	var b bytes.Buffer
	for _, d := range r.Findings {
		fmt.Fprintln(&b, r.paint(d, terminal.Plain(d.String())))
	}
	r.summary(&b)
	return b.Bytes()
}

// paint colours the severity in the line of a finding.
func (r Report) paint(d diag.Diagnostic, line string) string {
	if !r.Color {
		return line
	}
	color := map[diag.Severity]string{diag.Error: "31", diag.Warning: "33", diag.Info: "36"}[d.Severity]
	return strings.Replace(line, d.Severity.String()+": ", "\x1b["+color+"m"+d.Severity.String()+"\x1b[0m: ", 1)
}

// table writes a row with aligned columns for each finding, and a summary.
func (r Report) table() []byte {
	var b bytes.Buffer
	if len(r.Findings) > 0 {
		t := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
		fmt.Fprintln(t, "SEVERITY\tCODE\tOBJECT\tFIELD\tPOSITION\tMESSAGE")
		for _, d := range r.Findings {
			message := d.Message
			if d.Fix != "" {
				message += "; " + d.Fix
			}
			columns := []string{d.Severity.String(), cmp.Or(d.Code, "-"),
				cmp.Or(d.Object, "-"), cmp.Or(d.Field, "-"), cmp.Or(position(d), "-"), message}
			for i := range columns {
				columns[i] = terminal.Plain(columns[i])
			}
			fmt.Fprintln(t, strings.Join(columns, "\t"))
		}
		_ = t.Flush() // to a buffer
		b.WriteByte('\n')
	}
	r.summary(&b)
	return b.Bytes()
}

// position is file:line:column as far as it is known.
func position(d diag.Diagnostic) string {
	if d.File == "" || d.Line == 0 {
		return d.File
	}
	return d.File + ":" + strconv.Itoa(d.Line) + ":" + strconv.Itoa(d.Column)
}

func (r Report) summary(b *bytes.Buffer) {
	if r.Refusal != "" {
		var reasons []string
		for reason := range strings.SplitSeq(r.Refusal, "\n") {
			if reason = r.unsaid(reason); reason != "" {
				reasons = append(reasons, terminal.Plain(reason))
			}
		}
		fmt.Fprintln(b, "a server would refuse to start:", strings.Join(reasons, "\n"))
	}
	if r.Refusal == "" {
		fmt.Fprintf(b, "%s in force, ", Amount(r.Objects, "object"))
	}
	fmt.Fprintf(b, "%s, %s", Amount(r.Count(diag.Error), "error"), Amount(r.Count(diag.Warning), "warning"))
	if n := r.Count(diag.Info); n > 0 {
		fmt.Fprintf(b, ", %s", Amount(n, "info"))
	}
	b.WriteByte('\n')
}

// unsaid returns a reason of a refusal without the finding that ends it, which has a line of its own.
func (r Report) unsaid(reason string) string {
	for _, d := range r.Findings {
		if at := strings.Index(reason, position(d)+": "+d.Severity.String()+": "); d.File != "" && at >= 0 {
			return strings.TrimSuffix(reason[:at], ": ")
		}
	}
	return reason
}

// Amount returns a number with its noun.
func Amount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
