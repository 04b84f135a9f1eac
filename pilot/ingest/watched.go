package ingest

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// Namespaces returns the namespaces whose objects are read from API servers, or nil for all. The root namespace is one
// of them, because its objects may restrict the whole mesh.
func (o Options) Namespaces() []string {
	switch o.WatchNamespace {
	case "":
		return nil
	case o.Namespace:
		return []string{o.Namespace}
	}
	return []string{o.WatchNamespace, o.Namespace}
}

// watches reports whether objects of a namespace are read from API servers.
func (o Options) watches(namespace string) bool {
	return o.WatchNamespace == "" || slices.Contains(o.Namespaces(), namespace)
}

// watched returns a finding if Options.WatchNamespace names a namespace that does not take part in the mesh.
func (s *Sources) watched() (d diag.Diagnostic, wrong bool) {
	name := s.o.WatchNamespace
	if name == "" || s.o.Client == nil || !s.HasSynced() || s.world.TakesPart("", name) {
		return d, false
	}
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "WatchedNamespace", Object: "Namespace " + name,
		Message: "it is the only namespace that this server reads (ISTIO_WATCH_NAMESPACE), and it does not exist or " +
			"the discoverySelectors of the mesh configuration do not select it",
		Fix: "create the namespace, select it, or name another one in ISTIO_WATCH_NAMESPACE",
	}, true
}
