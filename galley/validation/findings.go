package validation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// badValue is the code of a finding about a value of the right type.
const badValue = "IST0106"

// findings collects the faults of one document.
type findings struct {
	file string
	list []diag.Diagnostic
}

func (f *findings) add(severity diag.Severity, p pos, path, code, fix, format string, args ...any) {
	f.list = append(f.list, diag.Diagnostic{
		Severity: severity, Code: code, Field: path, Message: fmt.Sprintf(format, args...), Fix: fix,
		File: f.file, Line: p.line, Column: p.col,
	})
}

func (f *findings) errorAt(p pos, path, code, fix, format string, args ...any) {
	f.add(diag.Error, p, path, code, fix, format, args...)
}

func (f *findings) warnAt(p pos, path, code, fix, format string, args ...any) {
	f.add(diag.Warning, p, path, code, fix, format, args...)
}

// addUnrelated adds findings about the meaning of a document's fields. It drops findings that may only follow from a
// known error: findings about the same field, about an enclosing or enclosed value, or about a missing field beside a
// field with an unknown name.
func (f *findings) addUnrelated(list []diag.Diagnostic) {
	errors := slices.DeleteFunc(slices.Clone(f.list), func(d diag.Diagnostic) bool { return d.Severity != diag.Error })
	for _, d := range list {
		if !slices.ContainsFunc(errors, func(e diag.Diagnostic) bool {
			return encloses(e.Field, d.Field) || encloses(d.Field, e.Field) ||
				e.Code == "WrongType" && d.Line == e.Line && d.Column == e.Column || // the path of a key with a dot has two forms
				e.Code == "UnknownField" && d.Code == "MissingField" && parent(e.Field) == parent(d.Field)
		}) {
			f.list = append(f.list, d)
		}
	}
}

// encloses reports whether path a equals path b or is the path of an enclosing value.
func encloses(a, b string) bool {
	rest, within := strings.CutPrefix(b, a)
	return within && (a == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

func (f *findings) failed() bool { return HasErrors(f.list) }

// finish names the object in every finding and sorts the findings by position.
func (f *findings) finish(object string) []diag.Diagnostic {
	for i := range f.list {
		f.list[i].Object = cmp.Or(f.list[i].Object, object)
	}
	slices.SortStableFunc(f.list, func(a, b diag.Diagnostic) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return f.list
}

// HasErrors reports whether one of the findings is an Error, so that the object is not used.
func HasErrors(list []diag.Diagnostic) bool {
	return slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return d.Severity == diag.Error })
}
