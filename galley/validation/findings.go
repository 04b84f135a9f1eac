package validation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// findings gathers what is wrong with one document.
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

func (f *findings) failed() bool { return HasErrors(f.list) }

// finish names the object in every finding and puts them in the order of the text.
func (f *findings) finish(object string) []diag.Diagnostic {
	for i := range f.list {
		if f.list[i].Object == "" {
			f.list[i].Object = object
		}
	}
	slices.SortStableFunc(f.list, func(a, b diag.Diagnostic) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return f.list
}

// HasErrors tells whether an object with these findings may not be used.
func HasErrors(list []diag.Diagnostic) bool {
	return slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return d.Severity == diag.Error })
}

// unknownName words a fix for a name that is none of those known: the nearest of them, or all if they are few.
func unknownName(name string, known []string) string {
	if best := nearest(name, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	if len(known) == 0 {
		return "remove it"
	}
	if len(known) <= 12 {
		sorted := slices.Sorted(slices.Values(known))
		return "use one of " + strings.Join(sorted, ", ")
	}
	return "remove it"
}

// nearest gives the known name that a typing mistake most likely meant, or "".
func nearest(name string, known []string) string {
	best, limit := "", min(2, len(name)/2)+1
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	for _, k := range slices.Sorted(slices.Values(known)) {
		if plain(k) == plain(name) {
			return k
		}
		if d := distance(name, k, limit); d < limit {
			best, limit = k, d
		}
	}
	return best
}

// distance is the number of letters to insert, remove, replace or swap with their neighbour, or limit when that is less.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(last[j]+1, cur[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, last, cur = last, cur, before
	}
	return min(last[len(b)], limit)
}
