package report

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// lines writes one line for each finding, and a summary.
func (r Report) lines() []byte {
	var b bytes.Buffer
	for _, d := range r.Findings {
		fmt.Fprintln(&b, d)
	}
	r.summary(&b)
	return b.Bytes()
}

// table writes a row with aligned columns for each finding, and a summary.
func (r Report) table() []byte {
	var b bytes.Buffer
	if len(r.Findings) > 0 {
		t := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
		fmt.Fprintln(t, "SEVERITY\tCODE\tOBJECT\tFIELD\tPOSITION\tMESSAGE")
		oneLine := strings.NewReplacer("\n", " ", "\r", " ", "\t", " ")
		for _, d := range r.Findings {
			message := d.Message
			if d.Fix != "" {
				message += "; " + d.Fix
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Severity, cmp.Or(d.Code, "-"), cmp.Or(d.Object, "-"), cmp.Or(d.Field, "-"), cmp.Or(position(d), "-"), oneLine.Replace(message))
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
		fmt.Fprintln(b, "a server would refuse to start:", r.Refusal)
		return
	}
	fmt.Fprintf(b, "%s in force, %s, %s", count(r.Objects, "object"), count(r.Count(diag.Error), "error"), count(r.Count(diag.Warning), "warning"))
	if n := r.Count(diag.Info); n > 0 {
		fmt.Fprintf(b, ", %s", count(n, "info"))
	}
	b.WriteByte('\n')
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
