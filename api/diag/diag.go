package diag

import (
	"fmt"
	"strconv"
	"strings"
)

// Severity of a Diagnostic.
type Severity int

// Severities. An object with an Error is not used, or requests fail for it; one with a Warning is used. Info is advice.
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

// UnmarshalText reads what MarshalText writes. An unknown word is a warning.
func (s *Severity) UnmarshalText(text []byte) error {
	*s = Warning
	for _, x := range []Severity{Info, Error} {
		if x.String() == string(text) {
			*s = x
		}
	}
	return nil
}

// Diagnostic says what is wrong with one object. Bad input yields diagnostics, not errors.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	// stable: IST0101 where istioctl analyze has the same finding, else a word such as UnknownField
	Code    string `json:"code"`
	Object  string `json:"object,omitempty"` // VirtualService a/web, empty when the document does not say
	Field   string `json:"field,omitempty"`  // spec.http[0].route[1].weight
	Message string `json:"message"`          // what is wrong
	Fix     string `json:"fix,omitempty"`    // what to write instead
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`   // from 1; 0 is unknown
	Column  int    `json:"column,omitempty"` // from 1, in characters
}

// At returns d with the position of an object, file:line:column; without one if the object has none.
func (d Diagnostic) At(position string) Diagnostic {
	part := strings.Split(position, ":")
	if n := len(part) - 2; n > 0 { // the file's name may have colons
		d.File = strings.Join(part[:n], ":")
		d.Line, _ = strconv.Atoi(part[n])
		d.Column, _ = strconv.Atoi(part[n+1])
	}
	return d
}

// String is one line: file:line:column: severity: object: field: message (fix).
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
