package bootstrap

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// defaultMesh is the mesh configuration where nobody gave one: the root namespace is the server's.
func defaultMesh(o Options) *mesh.Config {
	c := mesh.Default()
	c.RootNamespace = o.Namespace
	return c
}

// meshName is the name of the ConfigMap with the mesh configuration: istio, or istio-<revision>.
func meshName(o Options) string {
	if o.Revision == "" || o.Revision == "default" {
		return "istio"
	}
	return "istio-" + o.Revision
}

// meshKey is the ConfigMap that holds the mesh configuration and the networks.
func (w *world) meshKey() kinds.Key {
	return kinds.Key{Kind: kinds.ConfigMap, Namespace: w.o.Namespace, Name: meshName(w.o)}
}

// isMesh tells a ConfigMap that the mesh configuration is made of.
func (w *world) isMesh(k kinds.Key) bool {
	return k == w.meshKey() || w.o.SharedMesh != "" && k == kinds.Key{Kind: kinds.ConfigMap, Namespace: w.o.Namespace, Name: w.o.SharedMesh}
}

// meshLayer is the text of one ConfigMap.
type meshLayer struct{ data, file string }

// layers gives the texts of a key of the mesh's ConfigMaps, the shared one first: what comes later lies over it.
func (w *world) layers(key string) []meshLayer {
	names := []string{meshName(w.o)}
	if w.o.SharedMesh != "" && w.o.SharedMesh != names[0] {
		names = []string{w.o.SharedMesh, names[0]}
	}
	var out []meshLayer
	for _, name := range names {
		o := w.objects[kinds.Key{Kind: kinds.ConfigMap, Namespace: w.o.Namespace, Name: name}]
		if o == nil {
			continue
		}
		if text, ok := o.Spec.(*corev1.ConfigMap).Data[key]; ok {
			out = append(out, meshLayer{text, cmp.Or(o.Position, o.String())})
		}
	}
	return out
}

// applyMesh reads the mesh configuration and tells whether the registries depend on what is different. A text that is wrong counts as the last good one of
// that file.
func (w *world) applyMesh() (rebuild bool) {
	c, found, from := defaultMesh(w.o), []diag.Diagnostic(nil), "defaults"
	for _, l := range w.layers("mesh") {
		from = l.file
		next, wrong := mesh.ParseOver(c, l.file, []byte(l.data))
		found = append(found, wrong...)
		if next == nil {
			if next, _ = mesh.ParseOver(c, l.file, []byte(w.goodMesh[l.file])); next == nil {
				next = c
			}
		} else {
			w.goodMesh[l.file] = l.data
		}
		c = next
	}
	w.mu.Lock()
	changed, wrong := w.filter.selectNamespaces(c.GetDiscoverySelectors())
	w.mu.Unlock()
	found = append(found, wrong...)
	w.reselect = w.reselect || changed
	w.found("mesh", found)
	if !c.Equal(w.mesh) {
		rebuild = c.GetTrustDomain() != w.mesh.GetTrustDomain()
		w.mesh = c
		w.logger.Info("mesh configuration in force", "from", from)
	}

	n, found, from := (*mesh.Networks)(nil), []diag.Diagnostic(nil), "none"
	for _, l := range w.layers("meshNetworks") { // the last counts: networks are not merged
		from = l.file
		if n, found = mesh.ParseNetworks(l.file, []byte(l.data)); n == nil {
			n = w.networks // the last good ones
		}
	}
	w.found("meshNetworks", found)
	if same := n == w.networks || n != nil && w.networks != nil && n.Equal(w.networks); !same {
		w.networks, rebuild = n, true
		w.logger.Info("mesh networks in force", "from", from)
	}
	return rebuild
}

func (w *world) found(key string, list []diag.Diagnostic) {
	for _, d := range list {
		w.logger.Warn("finding", "finding", d.String())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findings[key] = list
}

// networkOf gives the function that finds an address in the mesh's list of networks: by the longest range that holds it, else by the cluster; nil where
// there is no list.
func networkOf(n *mesh.Networks, cluster string) func(address string) string {
	if n == nil {
		return nil
	}
	type entry struct {
		prefix  netip.Prefix
		network string
	}
	var ranges []entry
	ofCluster := ""
	for name, network := range n.GetNetworks() {
		for _, e := range network.GetEndpoints() {
			if p, err := netip.ParsePrefix(e.GetFromCidr()); err == nil {
				ranges = append(ranges, entry{p.Masked(), name})
			}
			if e.GetFromRegistry() == cluster && (ofCluster == "" || name < ofCluster) {
				ofCluster = name
			}
		}
	}
	slices.SortFunc(ranges, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.prefix.Bits(), a.prefix.Bits()), cmp.Compare(a.network, b.network))
	})
	return func(address string) string {
		if ip, err := netip.ParseAddr(address); err == nil {
			for _, e := range ranges {
				if e.prefix.Contains(ip.Unmap()) {
					return e.network
				}
			}
		}
		return ofCluster
	}
}
