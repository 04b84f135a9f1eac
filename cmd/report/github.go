package report

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
)

// annotations writes a workflow command for each finding: ::error file=..,line=..,col=..,title=..::message.
func (r Report) annotations() []byte {
	var b bytes.Buffer
	for _, d := range r.Findings {
		command := map[diag.Severity]string{diag.Error: "error", diag.Warning: "warning", diag.Info: "notice"}[d.Severity]
		var properties []string
		add := func(name, value string) { properties = append(properties, name+"="+escapeProperty(value)) }
		if d.File != "" {
			add("file", d.File)
			if d.Line > 0 {
				add("line", fmt.Sprint(d.Line))
				add("col", fmt.Sprint(max(d.Column, 1)))
			}
		}
		add("title", cmp.Or(d.Code, "finding"))
		d.File, d.Code = "", ""
		_, message, _ := strings.Cut(d.String(), ": ") // without the severity, which the command is
		fmt.Fprintf(&b, "::%s %s::%s\n", command, strings.Join(properties, ","), escapeData(message))
	}
	if r.Refusal != "" {
		fmt.Fprintf(&b, "::error title=refused::%s\n", escapeData("a server would refuse to start: "+r.Refusal))
	}
	return b.Bytes()
}

// escapeData escapes the message of a workflow command.
func escapeData(s string) string {
	return terminal.Plain(strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s))
}

// escapeProperty escapes the value of a property of a workflow command.
func escapeProperty(s string) string {
	return terminal.Plain(strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s))
}
