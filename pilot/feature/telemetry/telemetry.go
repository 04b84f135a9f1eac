package telemetry

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// New returns the feature.
func New() *feature.Feature {
	return &feature.Feature{
		Name:            "telemetry",
		UnsupportedMesh: unsupportedMesh,
		Hooks:           feature.Hooks{HTTPFilters: httpFilters, NetworkFilters: networkFilters, ConnectionManager: connectionManager},
	}
}

const statsFilter = "istio.stats"

func httpFilters(c feature.Chain) []*hcmv3.HttpFilter {
	if !statsEnabled(c.Mesh) || !c.Capabilities.Has(node.HTTPStats) {
		return nil
	}
	return []*hcmv3.HttpFilter{envoy.HTTPFilter(statsFilter, statsConfig())}
}

func networkFilters(c feature.Chain) []*listenerv3.Filter {
	if c.HTTP || !statsEnabled(c.Mesh) || !c.Capabilities.Has(node.NetworkStats) {
		return nil
	}
	return []*listenerv3.Filter{envoy.NetworkFilter(statsFilter, statsConfig())}
}

func connectionManager(c feature.Chain, m *hcmv3.HttpConnectionManager) {
	if c.Mesh.GetEnableTracing() {
		m.Tracing = tracing(c.Mesh, c.Tags)
	}
}

func statsConfig() *anypb.Any { return envoy.Empty("type.googleapis.com/stats.PluginConfig") }

// statsEnabled reports whether proxies record Istio's own metrics: a Prometheus provider is the mesh's default for
// metrics.
func statsEnabled(m *mesh.Config) bool {
	for _, p := range m.GetExtensionProviders() {
		if p.GetPrometheus() != nil && slices.Contains(m.GetDefaultProviders().GetMetrics(), p.Name) {
			return true
		}
	}
	return false
}
