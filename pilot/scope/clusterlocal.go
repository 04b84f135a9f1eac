package scope

import (
	"cmp"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// locality says of the hosts of a pattern whether each cluster keeps to its own endpoints.
type locality struct {
	pattern string
	local   bool
}

// localities gives what the mesh configuration says, over what holds without it: the most specific pattern first, of one pattern what was said last.
func localities(s *snapshot.Snapshot) []locality {
	said := map[string]bool{"*.kube-system.svc." + s.Domain: true, "kubernetes.default.svc." + s.Domain: true}
	for _, setting := range s.Mesh.GetServiceSettings() {
		for _, h := range setting.GetHosts() {
			said[strings.ToLower(h)] = setting.GetSettings().GetClusterLocal()
		}
	}
	var list []locality
	for pattern, local := range said {
		list = append(list, locality{pattern, local})
	}
	wild := func(l locality) int {
		if strings.HasPrefix(l.pattern, "*") {
			return 1
		}
		return 0
	}
	slices.SortFunc(list, func(a, b locality) int {
		return cmp.Or(wild(a)-wild(b), len(b.pattern)-len(a.pattern), strings.Compare(a.pattern, b.pattern))
	})
	return list
}

// ClusterLocal tells a host that means another service in each cluster: its callers are sent the endpoints of their own alone.
func (x *Index) ClusterLocal(host string) bool {
	i := slices.IndexFunc(x.clusterLocal, func(l locality) bool { return names.Covers(l.pattern, host) })
	return i >= 0 && x.clusterLocal[i].local
}
