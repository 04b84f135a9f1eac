package ingest

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// filter decides which objects are accepted: objects for this revision, in namespaces that the discoverySelectors of
// the mesh configuration select. The same filter applies to all sources.
type filter struct {
	revision string // "default" if unset
	// root is the root namespace. Its objects are never hidden by selectors, because they may restrict the whole mesh.
	root string

	selectors  []labels.Selector // of the mesh configuration; empty if all namespaces are selected
	namespaces map[clusterNamespace]labels.Set
}

// clusterNamespace is a namespace of one cluster.
type clusterNamespace struct{ cluster, namespace string }

func clusterNamespaceOf(k kinds.Key) clusterNamespace {
	return clusterNamespace{k.Cluster, k.Namespace}
}

func newFilter(revision, root string) *filter {
	revision = cmp.Or(revision, "default")
	return &filter{revision: revision, root: root, namespaces: map[clusterNamespace]labels.Set{}}
}

// selectNamespaces puts the selectors of a mesh configuration in force, and reports whether they have changed.
func (f *filter) selectNamespaces(selectors []labels.Selector) (changed bool) {
	if slices.EqualFunc(f.selectors, selectors, func(a, b labels.Selector) bool { return a.String() == b.String() }) {
		return false
	}
	f.selectors = selectors
	return true
}

// apply applies changes of Namespaces and returns the namespaces that became selected or unselected.
func (f *filter) apply(batch []kinds.Change) map[clusterNamespace]bool {
	var turned map[clusterNamespace]bool
	for _, c := range batch {
		if c.Kind != kinds.Namespace {
			continue
		}
		p := clusterNamespace{c.Key.Cluster, c.Name}
		was := f.selected(p)
		if c.Object == nil {
			delete(f.namespaces, p)
		} else {
			f.namespaces[p] = c.Object.Labels
		}
		if f.selected(p) != was {
			lists.Put(&turned, p, true)
		}
	}
	return turned
}

// selected reports whether the selectors select a namespace. A namespace that no source has yet is labelled with its
// name.
func (f *filter) selected(p clusterNamespace) bool {
	if len(f.selectors) == 0 || p.namespace == "" || p.namespace == f.root {
		return true
	}
	set, known := f.namespaces[p]
	if !known || set[names.LabelNamespace] == "" {
		named := labels.Set{names.LabelNamespace: p.namespace}
		for k, v := range set {
			named[k] = v
		}
		set = named
	}
	return slices.ContainsFunc(f.selectors, func(s labels.Selector) bool { return s.Matches(set) })
}

// accepts reports whether an object is for this revision and in a selected namespace.
func (f *filter) accepts(o *kinds.Object) bool {
	return (!o.Kind.Istio || f.forRevision(o.Labels)) && f.selected(clusterNamespaceOf(o.Key))
}

// forRevision reports whether an Istio object with those labels is for this revision.
func (f *filter) forRevision(labels map[string]string) bool {
	rev := labels[names.LabelRevision]
	return rev == "" || rev == f.revision
}
