package ingest

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// What shows reports of an object, Shows reports of its namespace and labels.
func TestShows(t *testing.T) {
	f := newFilter("canary", "istio-system")
	f.selectNamespaces([]labels.Selector{labels.SelectorFromSet(labels.Set{names.LabelNamespace: "in"})})
	w := &World{filter: f}
	for _, c := range []struct {
		namespace, revision string
		want                bool
	}{
		{"in", "", true}, {"in", "canary", true}, {"in", "other", false}, {"out", "", false}, {"out", "canary", false},
		{"istio-system", "", true},
	} {
		labels := map[string]string{}
		if c.revision != "" {
			labels[names.LabelRevision] = c.revision
		}
		o := &kinds.Object{Key: kinds.Key{Kind: kinds.VirtualService, Namespace: c.namespace, Name: "x"}, Labels: labels}
		if f.accepts(o) != c.want || w.Accepts(c.namespace, labels) != c.want {
			t.Errorf("%v: %v and %v", c, f.accepts(o), w.Accepts(c.namespace, labels))
		}
	}
}
