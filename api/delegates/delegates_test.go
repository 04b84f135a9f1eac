package delegates

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
)

// What a delegate counts is what its routes are once they are merged, and something for each entry.
func TestDelegateSize(t *testing.T) {
	match := func(path string) *networkingv1alpha3.HTTPMatchRequest {
		return &networkingv1alpha3.HTTPMatchRequest{
			Uri: &networkingv1alpha3.StringMatch{MatchType: &networkingv1alpha3.StringMatch_Prefix{Prefix: path}},
		}
	}
	route := func(matches ...string) *networkingv1alpha3.HTTPRoute {
		h := &networkingv1alpha3.HTTPRoute{Name: "name"}
		for _, m := range matches {
			h.Match = append(h.Match, match(m))
		}
		return h
	}
	child := &networkingv1.VirtualService{Http: []*networkingv1alpha3.HTTPRoute{route(), route("/a"), route("/a/b", "/a/c")}}
	find := func(d *networkingv1alpha3.Delegate) *networkingv1.VirtualService {
		if d.Name == "child" {
			return child
		}
		return nil
	}
	root := route("/", "/a", "/b")
	root.Delegate = &networkingv1alpha3.Delegate{Name: "child"}
	// Each match of the child's routes is there for each of the root's three, and the root's are there for the child's
	// route that has none.
	one := 3*(entryBytes+proto.Size(route())+entryBytes+
		proto.Size(root)-proto.Size(match("/"))-proto.Size(match("/a"))-proto.Size(match("/b"))) +
		3*(3*entryBytes+proto.Size(match("/a"))+2*proto.Size(match("/a/b"))) + 4*(3*entryBytes+proto.Size(match("/"))+2*proto.Size(match("/a")))
	var within cost
	for _, h := range child.Http {
		within.add(h)
	}
	if got := within.within(root); got < one || got > one+100 { // the fields' own bytes are counted with the text
		t.Errorf("a delegation counts %d, want %d", got, one)
	}
	cost := within.within(root)
	missing := &networkingv1alpha3.HTTPRoute{Delegate: &networkingv1alpha3.Delegate{Name: "missing"}}
	http := []*networkingv1alpha3.HTTPRoute{missing, root, route(), root, root}
	for _, c := range []struct{ hosts, most, want int }{{1, 3 * cost, 5}, {1, 3*cost - 1, 4},
		{1, cost, 3}, {1, cost - 1, 1}, {2, 6 * cost, 5}, {2, 4 * cost, 4}, {0, cost, 3}} {
		vs := &networkingv1.VirtualService{Hosts: slices.Repeat([]string{"a.example"}, c.hosts), Http: http}
		if got := Fitting(vs, c.most, find); got != c.want {
			t.Errorf("of %d hosts in %d bytes: the first %d routes, want %d", c.hosts, c.most, got, c.want)
		}
	}
}
