package diag

import (
	"fmt"
	"strconv"
	"strings"
)

// Severity of a Diagnostic.
type Severity int

// Severities. An Error means that the object is not used or that requests fail; an object with a Warning is used. Info
// is advice.
const (
	Info Severity = iota - 1
	Warning
	Error
)

func (s Severity) String() string {
	switch s {
	case Error:
		return "error"
	case Info:
		return "info"
	}
	return "warning"
}

// MarshalText writes the severity as a word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the text of MarshalText. An unknown word stands for a Warning.
func (s *Severity) UnmarshalText(text []byte) error {
	*s = Warning
	for _, x := range []Severity{Info, Error} {
		if x.String() == string(text) {
			*s = x
		}
	}
	return nil
}

// Diagnostic describes one fault of one object. Bad input yields diagnostics, not errors.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	// Code is stable: IST0101 if istioctl analyze has the same finding, else a word such as UnknownField.
	Code    string `json:"code"`
	Object  string `json:"object,omitempty"` // such as VirtualService a/web; empty if the document does not say
	Field   string `json:"field,omitempty"`  // such as spec.http[0].route[1].weight
	Message string `json:"message"`          // the fault
	Fix     string `json:"fix,omitempty"`    // the remedy
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`   // from 1; 0 if unknown
	Column  int    `json:"column,omitempty"` // from 1, in characters; 0 if unknown
}

// At returns d with an object's position, which is file:line:column or empty.
func (d Diagnostic) At(position string) Diagnostic {
	part := strings.Split(position, ":")
	if n := len(part) - 2; n > 0 { // the file's name may contain colons
		d.File = strings.Join(part[:n], ":")
		d.Line, _ = strconv.Atoi(part[n])
		d.Column, _ = strconv.Atoi(part[n+1])
	}
	return d
}

// String returns one line: file:line:column: severity: object: field: message (fix).
func (d Diagnostic) String() string {
	var b strings.Builder
	if d.File != "" {
		b.WriteString(d.File)
		if d.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", d.Line, d.Column)
		}
		b.WriteString(": ")
	}
	b.WriteString(d.Severity.String() + ": ")
	if d.Object != "" {
		b.WriteString(d.Object + ": ")
	}
	if d.Field != "" {
		b.WriteString(d.Field + ": ")
	}
	b.WriteString(d.Message)
	if d.Fix != "" {
		b.WriteString("; " + d.Fix)
	}
	if d.Code != "" {
		b.WriteString(" [" + d.Code + "]")
	}
	return b.String()
}
