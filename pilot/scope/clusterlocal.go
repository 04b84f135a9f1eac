package scope

import (
	"cmp"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// clusterLocalRule is a pattern of hosts, and whether clients of these hosts call only endpoints of their own cluster.
type clusterLocalRule struct {
	pattern string
	local   bool
}

// clusterLocalRules returns the mesh configuration's rules and the built-in ones, the most specific pattern first. If
// there are several rules for one pattern, the last one is in force.
func clusterLocalRules(s *snapshot.Snapshot) []clusterLocalRule {
	byPattern := map[string]bool{"*.kube-system.svc." + s.Domain: true, "kubernetes.default.svc." + s.Domain: true}
	for _, setting := range s.Mesh.GetServiceSettings() {
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
func (x *Index) ClusterLocal(host string) bool {
	i := slices.IndexFunc(x.clusterLocal, func(l clusterLocalRule) bool { return names.Covers(l.pattern, host) })
	return i >= 0 && x.clusterLocal[i].local
}
