package authz

import (
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// trustDomains returns the mesh's trust domain, and then its aliases by name.
func trustDomains(m *mesh.Config) []string {
	all := m.TrustDomains()
	slices.Sort(all[1:])
	return slices.Compact(all)
}

// inEveryDomain returns principals, with each that names a trust domain of the mesh in all of them.
func (t translation) inEveryDomain(values []string) []string {
	var list []string
	for _, v := range values {
		named, rest, _ := strings.Cut(v, "/")
		p := parsePattern(named)
		matches := func(domain string) bool {
			return p.kind == exact && domain == p.text || p.kind == suffix && strings.HasSuffix(domain, p.text)
		}
		if !strings.HasPrefix(rest, "ns/") || !slices.ContainsFunc(t.domains, matches) {
			list = append(list, v)
			continue
		}
		for _, d := range t.domains {
			if one := d + "/" + rest; !matches(d) {
				list = append(list, one)
			} else if !slices.Contains(list, v) {
				list = append(list, v)
			}
		}
	}
	return list
}
