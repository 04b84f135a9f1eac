package analysis

import (
	"slices"
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// rewrites reports rewrites of a prefix that put two slashes, or none, where the rest of the path begins. A proxy
// replaces the prefix and nothing else. Two slashes do no harm if proxies merge them.
func (a *analysis) rewrites() {
	normal := a.mesh.GetPathNormalization().GetNormalization()
	merges := normal == meshv1alpha1.MeshConfig_ProxyPathNormalization_MERGE_SLASHES ||
		normal == meshv1alpha1.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES
	for _, o := range a.judged {
		before := map[string]bool{} // prefixes of earlier matches
		for i, h := range o.Spec.(*networkingv1.VirtualService).Http {
			to := h.GetRewrite().GetUri()
			for _, prefix := range prefixes(h) {
				below := strings.TrimSuffix(prefix, "/") + "/"
				path, fix := "", ""
				switch open, closed := strings.HasSuffix(prefix, "/"), strings.HasSuffix(to, "/"); {
				case to == "" || isBelow(below, before):
				case !open && closed && !merges:
					path, fix = to+"/a", "match "+below+" with this rewrite, and "+prefix+" itself by exact"
				case open && !closed:
					path, fix = to+"a", "write "+to+"/"
				}
				if path != "" {
					a.report(o, diag.Info, codeRewrite, indexed("spec.http", i)+".rewrite.uri", fix,
						"the rewrite replaces %s and nothing else: a request for %sa goes on as %s", prefix, below, path)
				}
				if prefix != "/" { // which may have other conditions
					before[prefix] = true
				}
			}
		}
	}
}

// prefixes returns the prefixes that the matches of a route have. A match without a path has the prefix "/".
func prefixes(h *networkingv1alpha3.HTTPRoute) []string {
	if len(h.Match) == 0 {
		return []string{"/"}
	}
	var list []string
	for _, m := range h.Match {
		prefix := m.GetUri().GetPrefix()
		if m.GetUri() == nil {
			prefix = "/"
		}
		if strings.HasPrefix(prefix, "/") && !slices.Contains(list, prefix) { // no path has another prefix
			list = append(list, prefix)
		}
	}
	return list
}

// isBelow reports whether a path begins with one of some prefixes.
func isBelow(path string, prefixes map[string]bool) bool {
	for i := range len(path) + 1 {
		if prefixes[path[:i]] {
			return true
		}
	}
	return false
}
