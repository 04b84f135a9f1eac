package api_test

import (
	"maps"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	mcpv1alpha1 "istio.io/api/mcp/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds/api"
)

func entry(ns, name, host string) *kinds.Object {
	return &kinds.Object{
		Key: kinds.Key{Kind: kinds.ServiceEntry, Namespace: ns, Name: name}, Created: time.Unix(1700000000, 0),
		Labels: map[string]string{"a": "1", "b": "2", "c": "3"}, Annotations: map[string]string{"note": "x"},
		Spec: &networkingv1.ServiceEntry{Hosts: []string{host}},
	}
}

func change(o *kinds.Object) kinds.Change { return kinds.Change{Key: o.Key, Object: o} }

func decode(t *testing.T, r *envoy.Resource) (*mcpv1alpha1.Resource, proto.Message) {
	t.Helper()
	var a anypb.Any
	m := &mcpv1alpha1.Resource{}
	must.Succeed(t, proto.Unmarshal(r.Body, &a))
	must.Succeed(t, a.UnmarshalTo(m))
	body, err := m.Body.UnmarshalNew()
	must.Succeed(t, err)
	return m, body
}

func TestResourceHoldsTheObject(t *testing.T) {
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
	o, ageless := entry("a", "x", "x.example"), entry("b", "y", "y.example")
	ageless.Created = time.Time{}
	remote := entry("c", "z", "z.example")
	remote.Cluster = "other"
	b.Apply([]kinds.Change{change(o), change(ageless), change(remote)})
	s := b.Commit(time.Time{})
	g := api.New(false, nil)
	set := g.Set(s, "networking.istio.io/v1/ServiceEntry")
	if n := set.Len(); n != 2 {
		t.Fatalf("%d resources, not the two of this cluster", n)
	}
	m, body := decode(t, set.Get("a/x"))
	if !m.Metadata.CreateTime.AsTime().Equal(o.Created) || !maps.Equal(m.Metadata.Labels, o.Labels) ||
		!maps.Equal(m.Metadata.Annotations, o.Annotations) || m.Metadata.Version == "" {
		t.Errorf("metadata %v", m.Metadata)
	}
	if !proto.Equal(body, o.Spec.(proto.Message)) || m.Body.TypeUrl != "type.googleapis.com/istio.networking.v1alpha3.ServiceEntry" {
		t.Errorf("body %v", m.Body)
	}
	if m, _ := decode(t, set.Get("b/y")); !m.Metadata.CreateTime.AsTime().IsZero() {
		t.Errorf("an object of unknown age was created %v", m.Metadata.CreateTime)
	}
	for _, version := range kinds.ServiceEntry.Versions {
		if g.Set(s, kinds.ServiceEntry.APIVersion(version)+"/ServiceEntry") != set {
			t.Errorf("version %s has a list of its own", version)
		}
	}
	for _, url := range []string{
		"", "/", "ServiceEntry", "v1/Secret", "networking.istio.io/v9/ServiceEntry", "gateway.networking.k8s.io/v1/HTTPRoute",
		envoy.ClusterType,
	} {
		if set := g.Set(s, url); set.Len() != 0 {
			t.Errorf("type %q has %d resources", url, set.Len())
		}
	}
}

// TestVersionsFollowContent: what has not changed keeps its bytes and its pointer, on every server; what has changed
// has another version, in its metadata too.
func TestVersionsFollowContent(t *testing.T) {
	const url = "networking.istio.io/v1/ServiceEntry"
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
	x, y := entry("a", "x", "x.example"), entry("a", "y", "y.example")
	b.Apply([]kinds.Change{change(x), change(y)})
	g := api.New(false, nil)
	first := g.Set(b.Commit(time.Time{}), url)
	other := &kinds.Object{Key: kinds.Key{Kind: kinds.Sidecar, Namespace: "a", Name: "s"}, Spec: &networkingv1.Sidecar{}}
	b.Apply([]kinds.Change{change(other)})
	if g.Set(b.Commit(time.Time{}), url) != first {
		t.Error("a change of another kind made another list")
	}
	b.Apply([]kinds.Change{change(entry("a", "x", "other.example"))})
	second := g.Set(b.Commit(time.Time{}), url)
	if second.Get("a/y") != first.Get("a/y") || second.Get("a/x") == first.Get("a/x") {
		t.Error("not just what changed is new")
	}
	was, _ := decode(t, first.Get("a/x"))
	is, _ := decode(t, second.Get("a/x"))
	if was.Metadata.Version == is.Metadata.Version || first.Get("a/x").Version == second.Get("a/x").Version {
		t.Error("another content has the same version")
	}
	b = snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default()})
	b.Apply([]kinds.Change{change(entry("a", "x", "x.example"))})
	if again := api.New(false, nil).Set(b.Commit(time.Time{}), url).Get("a/x"); again.Version != first.Get("a/x").Version {
		t.Error("another server gives the same object another version")
	}
}
