package authz

import (
	"slices"
	"strings"
)

// inEveryDomain returns principals, each of which has its trust domain replaced by all of the mesh, if it is one of
// them.
func (t translation) inEveryDomain(values []string) []string {
	var list []string
	for _, v := range values {
		domain, rest, ok := strings.Cut(v, "/")
		if !ok || !slices.Contains(t.domains, domain) {
			list = append(list, v)
			continue
		}
		for _, d := range t.domains {
			list = append(list, d+"/"+rest)
		}
	}
	return list
}
