package catalog

import (
	"slices"
	"testing"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// TestEveryKindHasOneReader holds that each kind that sources read is a feature's or a scope's, or is read before the
// Snapshot or beside it. Sources and the rules of the charts follow from kinds.All.
func TestEveryKindHasOneReader(t *testing.T) {
	before := []*kinds.Kind{
		kinds.Namespace, kinds.Node, kinds.ConfigMap, kinds.Secret, kinds.Pod, kinds.Service, kinds.EndpointSlice, kinds.WorkloadEntry,
		kinds.WorkloadGroup, kinds.ServiceEntry, kinds.ServiceExport, kinds.ServiceImport,
		kinds.ProxyConfig,                 // by injection
		kinds.Ingress, kinds.IngressClass, // by a stage
		kinds.GatewayClass, kinds.KubeGateway, kinds.ListenerSet, kinds.HTTPRoute, kinds.GRPCRoute, kinds.ReferenceGrant, // by a stage
		kinds.TLSRoute, kinds.TCPRoute, kinds.UDPRoute, kinds.BackendTLSPolicy, kinds.XBackendTrafficPolicy, // by the same
	}
	read := Features().Kinds()
	for _, k := range kinds.All() {
		_, translated := read[k]
		readers := 0
		for _, is := range []bool{translated, slices.Contains(before, k)} {
			if is {
				readers++
			}
		}
		if readers != 1 {
			t.Errorf("%s of %q: %d of the lists name it, want one", k.Name, k.Group, readers)
		}
	}
	for k, reach := range read {
		if made := reach == snapshot.Subscribed; made == slices.Contains(kinds.All(), k) { // the server makes these itself
			t.Errorf("no source has a %s", k.Name)
		}
	}
}

// TestOneFeatureHasAnExclusiveHook: of a hook that replaces what another feature would do there is one, and names of
// features are unique, because they are parts of keys.
func TestOneFeatureHasAnExclusiveHook(t *testing.T) {
	owners, named := map[string][]string{}, map[string]bool{}
	for _, f := range Features() {
		if named[f.Name] {
			t.Errorf("two features are called %s", f.Name)
		}
		named[f.Name] = true
		for hook, has := range map[string]bool{"Transport": f.Transport != nil, "Destination": f.Destination != nil, "Routes": f.Routes != nil} {
			if has {
				owners[hook] = append(owners[hook], f.Name)
			}
		}
	}
	for _, hook := range []string{"Transport", "Destination", "Routes"} {
		if len(owners[hook]) != 1 {
			t.Errorf("%s is filled by %v, want one feature", hook, owners[hook])
		}
	}
}

// TestUnsupported joins what translate and features declare, of a kind that several read too, and names the object.
func TestUnsupported(t *testing.T) {
	says := func(field string) []diag.Diagnostic {
		return []diag.Diagnostic{feature.NotImplemented(field, "nothing", "")}
	}
	features := List{
		{Name: "a", Kinds: []*kinds.Kind{kinds.Gateway}, Unsupported: func(*kinds.Object) []diag.Diagnostic { return says("a") }},
		{Name: "b", Kinds: []*kinds.Kind{kinds.Gateway}},
		{Name: "c", Kinds: []*kinds.Kind{kinds.Gateway, kinds.Sidecar}, Unsupported: func(*kinds.Object) []diag.Diagnostic { return says("c") }},
		{Name: "d", UnsupportedMesh: func(*mesh.Config, *meshv1alpha1.MeshConfig) []diag.Diagnostic { return says("d") }},
	}
	check := func(object string, list []diag.Diagnostic, want ...string) {
		t.Helper()
		var fields []string
		for _, d := range list {
			if fields = append(fields, d.Field); d.Object != object {
				t.Errorf("%s: a finding about %q", object, d.Object)
			}
		}
		if !slices.Equal(fields, want) {
			t.Errorf("%s: findings about %v, want %v", object, fields, want)
		}
	}
	for kind, want := range map[*kinds.Kind][]string{kinds.Gateway: {"a", "c"}, kinds.Sidecar: {"c"}, kinds.Service: nil} {
		o := &kinds.Object{Key: kinds.Key{Kind: kind, Namespace: "n", Name: "x"}, Spec: kind.New()}
		check(o.String(), features.Unsupported(o), want...)
	}
	check("MeshConfig", features.UnsupportedMesh(mesh.Default()), "d")
}
