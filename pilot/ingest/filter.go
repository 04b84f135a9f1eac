package ingest

import (
	"slices"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// filter decides which objects count: those that are meant for this revision, in namespaces that the mesh
// configuration's discoverySelectors select. It is the same for all sources.
type filter struct {
	revision string // "default" where none is set
	root     string // the root namespace: what holds for the whole mesh is never hidden, for hiding it would open what it closes

	written    []*meshv1alpha1.LabelSelector // as in the mesh configuration
	selectors  []labels.Selector             // none: every namespace
	namespaces map[clusterNamespace]labels.Set
}

// clusterNamespace is a namespace of one cluster.
type clusterNamespace struct{ cluster, namespace string }

func clusterNamespaceOf(k kinds.Key) clusterNamespace {
	return clusterNamespace{k.Cluster, k.Namespace}
}

func newFilter(revision, root string) *filter {
	if revision == "" {
		revision = "default"
	}
	return &filter{revision: revision, root: root, namespaces: map[clusterNamespace]labels.Set{}}
}

// selectNamespaces takes the selectors of a mesh configuration and reports whether they differ from those before. If
// one is wrong, those before stay.
func (f *filter) selectNamespaces(written []*meshv1alpha1.LabelSelector) (changed bool, found []diag.Diagnostic) {
	same := slices.EqualFunc(f.written, written, func(a, b *meshv1alpha1.LabelSelector) bool { return proto.Equal(a, b) })
	if same {
		return false, nil
	}
	next := make([]labels.Selector, 0, len(written))
	for _, s := range written {
		m := metav1.LabelSelector{MatchLabels: s.GetMatchLabels()}
		for _, e := range s.GetMatchExpressions() {
			m.MatchExpressions = append(m.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: e.GetKey(), Operator: metav1.LabelSelectorOperator(e.GetOperator()), Values: e.GetValues(),
			})
		}
		selector, err := metav1.LabelSelectorAsSelector(&m)
		if err != nil {
			return false, []diag.Diagnostic{{
				Severity: diag.Error, Code: "InvalidSelector", Object: "MeshConfig", Field: "discoverySelectors", Message: err.Error(),
				Fix: "until it is mended, the selectors before stay in force",
			}}
		}
		next = append(next, selector)
	}
	f.written, f.selectors = written, next
	return true, nil
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
			if turned == nil {
				turned = map[clusterNamespace]bool{}
			}
			turned[p] = true
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
