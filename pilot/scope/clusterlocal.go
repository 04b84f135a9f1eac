package scope

import (
	"cmp"
	"net"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// clusterLocalRule is a pattern of hosts, and whether clients of these hosts call only endpoints of their own cluster.
type clusterLocalRule struct {
	pattern string
	local   bool
}

// clusterLocalRules returns the mesh configuration's rules and the built-in ones, the most specific pattern first. If
// there are several rules for one pattern, the last one is in force. The control plane's own host, as proxies call it,
// is built in too.
func clusterLocalRules(m *mesh.Config, domain string) []clusterLocalRule {
	byPattern := map[string]bool{"*.kube-system.svc." + domain: true, "kubernetes.default.svc." + domain: true}
	if host, _, err := net.SplitHostPort(m.GetDefaultConfig().GetDiscoveryAddress()); err == nil && host != "" {
		if !strings.HasSuffix(host, domain) {
			host += "." + domain
		}
		byPattern[strings.ToLower(host)] = true
	}
	for _, setting := range m.GetServiceSettings() {
		for _, h := range setting.GetHosts() {
			byPattern[strings.ToLower(h)] = setting.GetSettings().GetClusterLocal()
		}
	}
	var list []clusterLocalRule
	for pattern, local := range byPattern {
		list = append(list, clusterLocalRule{pattern, local})
	}
	rank := func(l clusterLocalRule) int {
		if strings.HasPrefix(l.pattern, "*") {
			return 1
		}
		return 0
	}
	slices.SortFunc(list, func(a, b clusterLocalRule) int {
		return cmp.Or(rank(a)-rank(b), len(b.pattern)-len(a.pattern), strings.Compare(a.pattern, b.pattern))
	})
	return list
}

// ClusterLocal reports whether a host is a separate service in each cluster. Its clients are sent only the endpoints of
// their own cluster.
func (x *Index) ClusterLocal(host string) bool { return clusterLocal(x.clusterLocal, host) }

func clusterLocal(rules []clusterLocalRule, host string) bool {
	i := slices.IndexFunc(rules, func(l clusterLocalRule) bool { return names.Covers(l.pattern, host) })
	return i >= 0 && rules[i].local
}

// ClusterLocal reports whether a host is a separate service in each cluster, by a mesh configuration alone.
func ClusterLocal(m *mesh.Config, domain, host string) bool {
	return clusterLocal(clusterLocalRules(m, domain), host)
}
