package scope

import (
	"fmt"
	"slices"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// TestDelegations: what delegates is known for as long as it does: a change of the delegate costs nothing for those that went, or delegate to others now.
func TestDelegations(t *testing.T) {
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
	var x *Index
	enter := func(name string, hosts []string, delegates ...string) {
		k := kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: name}
		spec := &networkingv1.VirtualService{Hosts: hosts}
		for _, d := range delegates {
			spec.Http = append(spec.Http, &networkingv1alpha3.HTTPRoute{Delegate: &networkingv1alpha3.Delegate{Name: d}})
		}
		c := kinds.Change{Key: k, Object: &kinds.Object{Key: k, Spec: spec}}
		if hosts == nil && delegates == nil {
			c.Object = nil
		}
		b.Apply([]kinds.Change{c})
		x = NewIndex(b.Commit(time.Time{}), x)
	}
	known := func(want ...string) {
		t.Helper()
		var got []string
		for d := range x.roots.All {
			got = append(got, d.delegate+" of "+d.root.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q delegate, want %q", got, want)
		}
	}
	host := []string{"x.example"}
	enter("root", host, "part", "part", "missing")
	enter("other", []string{"y.example"}, "part")
	known("a/missing of root", "a/part of other", "a/part of root")
	enter("root", host, "third")
	known("a/part of other", "a/third of root")
	enter("third", nil, "deeper") // delegates further, which is not followed
	known("a/part of other", "a/third of root")
	if !slices.Equal(x.Changes.Hosts, host) {
		t.Errorf("the delegate's change reaches %q", x.Changes.Hosts)
	}
	enter("root", host)
	known("a/part of other")
	enter("other", nil)
	known()
	for i := range 300 {
		enter(fmt.Sprint("root", i), host, "part")
		enter(fmt.Sprint("root", i), nil)
	}
	known()
}
