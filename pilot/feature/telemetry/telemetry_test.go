package telemetry_test

import (
	"cmp"
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/telemetry"
)

// tracingOf returns the tracing of a workload.
func tracingOf(m *mesh.Config, tags feature.Tags) *hcmv3.HttpConnectionManager_Tracing {
	m.EnableTracing = true
	manager := &hcmv3.HttpConnectionManager{}
	telemetry.New().Listeners.ConnectionManager(feature.Chain{Proxy: feature.Proxy{Mesh: m, Tags: tags}}, manager)
	return manager.Tracing
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
		{configured(25), "0", 25}, // as if it were not set
		{configured(25), "101", 25},
		{configured(25), "-1", 25},
		{configured(25), "NaN", 25},
	} {
		own, err := mesh.OwnTracing(&structpb.Struct{Fields: map[string]*structpb.Value{"tracing": structpb.NewStructValue(&structpb.Struct{
			Fields: map[string]*structpb.Value{"sampling": structpb.NewStringValue(cmp.Or(c.own, "0"))},
		})}})
		must.Succeed(t, err)
		if got := tracingOf(c.mesh, feature.Tags{Tracing: own}).RandomSampling.Value; got != c.want {
			t.Errorf("%v with %q: %v, want %v", c.mesh.GetDefaultConfig().GetTracing(), c.own, got, c.want)
		}
	}
}
