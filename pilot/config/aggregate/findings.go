package aggregate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// Findings returns one warning for each key that several sources have, in the order of objects.
func (s *Source) Findings() []diag.Diagnostic {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findings()
}

func (s *Source) findings() []diag.Diagnostic {
	list := make([]diag.Diagnostic, 0, len(s.shared))
	for key, candidates := range s.shared {
		d := diag.Diagnostic{Severity: diag.Warning, Code: "DuplicateObject", Object: key.String(), Fix: "keep it in one of them"}
		var hidden []string
		for _, c := range candidates[1:] {
			hidden = append(hidden, s.where(c))
			if d.File == "" {
				d = d.At(c.object.Position)
			}
		}
		d.Message = fmt.Sprintf("several sources have this object: that of %s counts, not that of %s", s.where(candidates[0]), strings.Join(hidden, ", nor that of "))
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b diag.Diagnostic) int { return cmp.Compare(a.Object, b.Object) })
	return list
}

func (s *Source) where(c candidate) string {
	name := s.sources[c.source].name
	if c.object.Position != "" {
		name += " (" + c.object.Position + ")"
	}
	return name
}
