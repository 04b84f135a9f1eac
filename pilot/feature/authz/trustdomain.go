package authz

import (
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// trustDomains returns the mesh's trust domain, and then its aliases, sorted.
func trustDomains(m *mesh.Config) []string {
	all := m.TrustDomains()
	slices.Sort(all[1:])
	return slices.Compact(all)
}

// anyTrustDomain is a name in principals that matches each trust domain of the mesh. Policies are written with the
// default trust domain of a mesh.
const anyTrustDomain = "cluster.local"

// inEveryDomain returns principals in which each ID in a trust domain of the mesh is repeated for all of them. A
// pattern names a trust domain that it matches. A pattern that is not a whole ID does so only by the exact name or the
// end of a trust domain of the mesh.
func (t translation) inEveryDomain(values []string, keepsOut bool) []string {
	var list []string
	for _, v := range values {
		named, rest, _ := strings.Cut(v, "/")
		whole := strings.Count(v, "/") == 4 // domain/ns/namespace/sa/account
		p := parsePattern(named)
		ends := func(domain string) bool { return p.kind == suffix && strings.HasSuffix(domain, p.text) }
		matches := func(domain string) bool {
			return domain == named || ends(domain) || whole && p.kind == prefix && strings.HasPrefix(domain, p.text)
		}
		pointer := whole && named == anyTrustDomain
		if !strings.HasPrefix(rest, "ns/") || !pointer && !slices.ContainsFunc(t.domains, matches) {
			list = append(list, v)
			continue
		}
		for _, d := range t.domains {
			if one := d + "/" + rest; !ends(d) {
				list = append(list, one)
			} else if !slices.Contains(list, v) {
				list = append(list, v)
			}
		}
		if pointer && keepsOut && !slices.Contains(t.domains, named) {
			list = append(list, v) // a peer of another mesh may have this trust domain
		}
	}
	return list
}

// withAliases returns names of trust domains in which each of the mesh's is replaced by all of them.
func (t translation) withAliases(names []string) []string {
	var list []string
	added := false
	for _, n := range names {
		switch {
		case !slices.Contains(t.domains, n):
			list = append(list, n)
		case !added:
			list, added = append(list, t.domains...), true
		}
	}
	return list
}
