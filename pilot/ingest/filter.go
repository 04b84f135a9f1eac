package ingest

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// filter decides which objects count: those that are meant for this revision, in namespaces that the mesh
// configuration's discoverySelectors select. It is the same for all sources.
type filter struct {
	revision string // "default" where none is set
	root     string // the root namespace: what holds for the whole mesh is never hidden, for hiding it would open what it closes

	selectors  []labels.Selector // from the mesh configuration; an empty list selects every namespace
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

// selectNamespaces puts the selectors of a mesh configuration in force, and reports whether any of them is different.
func (f *filter) selectNamespaces(selectors []labels.Selector) (changed bool) {
	if slices.EqualFunc(f.selectors, selectors, func(a, b labels.Selector) bool { return a.String() == b.String() }) {
		return false
	}
	f.selectors = selectors
	return true
}

// apply takes in changes of Namespaces and returns those that are selected now and were not, or the reverse.
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

// selected reports whether a namespace takes part. One that no source has yet has its name for a label.
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

// shows reports whether an object counts.
func (f *filter) shows(o *kinds.Object) bool {
	return (!o.Kind.Istio || f.meant(o.Labels)) && f.selected(clusterNamespaceOf(o.Key))
}

// meant reports whether an object of Istio's with those labels is meant for this revision.
func (f *filter) meant(labels map[string]string) bool {
	rev := labels[names.LabelRevision]
	return rev == "" || rev == f.revision
}
