package scope

import (
	"fmt"
	"slices"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// TestDelegationsAreForgotten checks that a delegation is stored only while it exists: a change of a delegate costs
// nothing for VirtualServices that are deleted or have another delegate now.
func TestDelegationsAreForgotten(t *testing.T) {
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
		for d := range x.delegations.All {
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
	enter("third", nil, "deeper") // delegates further, which has no effect
	known("a/part of other", "a/third of root")
	if !slices.Equal(x.Dirty.Hosts, host) {
		t.Errorf("the delegate's change reaches %q", x.Dirty.Hosts)
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

// TestDelegationsAreBounded checks that delegations which would make a VirtualService larger than the limit are left
// out, and return when the delegate is smaller.
func TestDelegationsAreBounded(t *testing.T) {
	bounds := limits.Default()
	bounds.RepeatedText = 4000
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default(), Limits: bounds})
	var x *Index
	enter := func(name string, spec *networkingv1.VirtualService) {
		k := kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: name}
		b.Apply([]kinds.Change{{Key: k, Object: &kinds.Object{Key: k, Spec: spec}}})
		x = NewIndex(b.Commit(time.Time{}), x)
	}
	routes := func(n int) (list []*networkingv1alpha3.HTTPRoute) {
		for range n {
			list = append(list, &networkingv1alpha3.HTTPRoute{Redirect: &networkingv1alpha3.HTTPRedirect{}})
		}
		return list
	}
	root := &networkingv1.VirtualService{Hosts: []string{"x.example"}}
	for range 10 {
		root.Http = append(root.Http, &networkingv1alpha3.HTTPRoute{Delegate: &networkingv1alpha3.Delegate{Name: "part"}})
	}
	root.Http = append(root.Http, routes(1)...)
	enter("root", root)
	for _, c := range []struct{ of, want int }{{2, 10*2 + 1}, {5, 5*5 + 1}, {1000, 1}, {2, 10*2 + 1}} {
		enter("part", &networkingv1.VirtualService{Http: routes(c.of)})
		v := x.virtualService(kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "root"})
		if got := len(v.Spec.Http); got != c.want {
			t.Errorf("ten delegations to %d routes make %d routes, want %d", c.of, got, c.want)
		}
	}
}

// TestDelegatesAreExported checks that a delegate counts only where it is exported to the namespace of the
// VirtualService that names it, by its own exportTo or by the mesh's default, and that a change of either takes effect.
func TestDelegatesAreExported(t *testing.T) {
	m := mesh.Default()
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: m})
	var x *Index
	root := kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "root"}
	enter := func(k kinds.Key, spec *networkingv1.VirtualService) {
		b.Apply([]kinds.Change{{Key: k, Object: &kinds.Object{Key: k, Spec: spec}}})
		x = NewIndex(b.Commit(time.Time{}), x)
	}
	export := func(to ...string) {
		enter(kinds.Key{Kind: kinds.VirtualService, Namespace: "b", Name: "part"}, &networkingv1.VirtualService{
			ExportTo: to, Http: []*networkingv1alpha3.HTTPRoute{{
				Route: []*networkingv1alpha3.HTTPRouteDestination{{Destination: &networkingv1alpha3.Destination{Host: "web"}}},
			}},
		})
	}
	counts := func(want bool) {
		t.Helper()
		if v, ok := x.virtualServices.Get(&VirtualService{Object: &kinds.Object{Key: root}}); !ok || (len(v.Spec.Http) == 1) != want {
			t.Errorf("%v has the delegate's route, want %v", v, want)
		}
	}
	enter(root, &networkingv1.VirtualService{Hosts: []string{"x.example"},
		Http: []*networkingv1alpha3.HTTPRoute{{Delegate: &networkingv1alpha3.Delegate{Name: "part", Namespace: "b"}}}})
	counts(false)
	export()
	counts(true)
	for _, c := range []struct {
		to   []string
		want bool
	}{{[]string{"."}, false}, {[]string{"a"}, true}, {[]string{"~"}, false}, {[]string{"*"}, true}, {[]string{"b", "c"}, false}, {nil, true}} {
		export(c.to...)
		counts(c.want)
	}
	private := mesh.Default()
	private.DefaultVirtualServiceExportTo = []string{"."}
	b.SetMesh(private)
	x = NewIndex(b.Commit(time.Time{}), x)
	counts(false)
	b.SetMesh(m)
	x = NewIndex(b.Commit(time.Time{}), x)
	counts(true)
}
