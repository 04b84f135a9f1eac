package mtls

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// selectPolicies selects, in this order, at most one policy of the mesh, one of the namespace, and one that selects the
// workload. In the root namespace a policy with a selector is ignored, as in istiod. No policy applies to routers.
func selectPolicies(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
	var common, selecting []*kinds.Object
	root := r.RootNamespace()
	if namespace != root {
		for _, o := range r.Objects(kinds.PeerAuthentication, root) {
			if !selective(o) {
				common = append(common, o)
				break
			}
		}
	}
	own := false
	for _, o := range r.Objects(kinds.PeerAuthentication, namespace) {
		switch {
		case selective(o) && namespace == root:
		case selective(o):
			selecting = append(selecting, o)
		case !own:
			common, own = append(common, o), true
		}
	}
	all := feature.Of(common...)
	return func(w feature.Workload) feature.Selection {
		if w.Type == node.Router {
			return feature.Selection{}
		}
		for _, o := range selecting {
			if w.Labels.Match(spec(o).GetSelector().GetMatchLabels()) {
				return feature.Of(append(slices.Clip(common), o)...)
			}
		}
		return all
	}
}

// selective reports whether a policy applies to some workloads of its namespace only.
func selective(o *kinds.Object) bool { return len(spec(o).GetSelector().GetMatchLabels()) > 0 }
