package telemetry_test

import (
	"slices"
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/telemetry"
)

// tracingOf returns the tracing of a workload.
func tracingOf(m *mesh.Config, tags feature.Tags) *hcmv3.HttpConnectionManager_Tracing {
	m.EnableTracing = true
	manager := &hcmv3.HttpConnectionManager{}
	telemetry.New().ConnectionManager(feature.Chain{Proxy: feature.Proxy{Mesh: m, Tags: tags}}, manager)
	return manager.Tracing
}

// hasStats reports whether a proxy that is capable of them gets the filters.
func hasStats(m *mesh.Config) bool {
	c := feature.Chain{Proxy: feature.Proxy{Mesh: m, Capabilities: node.HTTPStats | node.NetworkStats}}
	return len(telemetry.New().HTTPFilters(c))+len(telemetry.New().NetworkFilters(c)) == 2
}

func TestTracing(t *testing.T) {
	m := mesh.Default()
	tr := tracingOf(m, feature.Tags{CanonicalService: "web", CanonicalRevision: "v1", Cluster: "c", Mesh: "m", Namespace: "a"})
	if err := tr.ValidateAll(); err != nil {
		t.Error(err)
	}
	literals := map[string]string{}
	var order []string
	for _, tag := range tr.CustomTags {
		if tag.GetLiteral() != nil {
			literals[tag.Tag] = tag.GetLiteral().Value
		}
		order = append(order, tag.Tag)
	}
	want := map[string]string{"istio.canonical_service": "web", "istio.canonical_revision": "v1", "istio.cluster_id": "c", "istio.mesh_id": "m", "istio.namespace": "a"}
	for k, v := range want {
		if literals[k] != v {
			t.Errorf("%s is %q", k, literals[k])
		}
	}
	if len(literals) != len(want) || !slices.IsSorted(order) {
		t.Errorf("tags %v", order)
	}
	empty := tracingOf(m, feature.Tags{})
	for _, tag := range empty.CustomTags {
		if tag.GetLiteral() != nil {
			t.Errorf("empty literal %s", tag.Tag)
		}
	}
}

func TestSampling(t *testing.T) {
	configured := func(v float64) *mesh.Config {
		m := mesh.Default()
		m.DefaultConfig.Tracing = &meshv1alpha1.Tracing{Sampling: v}
		return m
	}
	for _, c := range []struct {
		mesh *mesh.Config
		own  string
		want float64
	}{
		{mesh.Default(), "", 1},
		{configured(25), "", 25},
		{configured(250), "", 100},
		{configured(25), "50", 50},
		{configured(25), "0", 0},
		{configured(25), "101", 25},
		{configured(25), "-1", 25},
		{configured(25), "NaN", 25},
		{mesh.Default(), "much", 1},
	} {
		if got := tracingOf(c.mesh, feature.Tags{Sampling: c.own}).RandomSampling.Value; got != c.want {
			t.Errorf("%v with %q: %v, want %v", c.mesh.GetDefaultConfig().GetTracing(), c.own, got, c.want)
		}
	}
}

func TestStats(t *testing.T) {
	m := mesh.Default()
	if hasStats(m) {
		t.Error("nobody asked for metrics")
	}
	m.DefaultProviders = &meshv1alpha1.MeshConfig_DefaultProviders{Metrics: []string{"stackdriver"}}
	if hasStats(m) {
		t.Error("another provider")
	}
	m.DefaultProviders.Metrics = append(m.DefaultProviders.Metrics, "prometheus")
	if !hasStats(m) {
		t.Error("prometheus is the default")
	}
}
