package telemetry

import (
	"strconv"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// defaultSampling is the share of requests that are traced by default, in percent.
const defaultSampling = 1

// dryRun is the tags with the results of authorization policies in dry-run mode. Each has the key under which the RBAC
// filter stores the result in the request's metadata.
var dryRun = [][2]string{
	{"istio.authorization.dry_run.allow_policy.name", "istio_dry_run_allow_shadow_effective_policy_id"},
	{"istio.authorization.dry_run.allow_policy.result", "istio_dry_run_allow_shadow_engine_result"},
	{"istio.authorization.dry_run.deny_policy.name", "istio_dry_run_deny_shadow_effective_policy_id"},
	{"istio.authorization.dry_run.deny_policy.result", "istio_dry_run_deny_shadow_engine_result"},
}

// tracing returns the tracing of a connection manager. Tags are sorted by name, first those of dry runs, then the
// literals.
func tracing(m *mesh.Config, l feature.Tags) *hcmv3.HttpConnectionManager_Tracing {
	t := &hcmv3.HttpConnectionManager_Tracing{
		ClientSampling:  &typev3.Percent{Value: 100},
		RandomSampling:  &typev3.Percent{Value: sampling(m, l.Sampling)},
		OverallSampling: &typev3.Percent{Value: 100},
	}
	for _, tag := range dryRun {
		t.CustomTags = append(t.CustomTags, &tracingv3.CustomTag{Tag: tag[0], Type: &tracingv3.CustomTag_Metadata_{Metadata: &tracingv3.CustomTag_Metadata{
			Kind: &metadatav3.MetadataKind{Kind: &metadatav3.MetadataKind_Request_{Request: &metadatav3.MetadataKind_Request{}}},
			MetadataKey: &metadatav3.MetadataKey{Key: "envoy.filters.http.rbac", Path: []*metadatav3.MetadataKey_PathSegment{
				{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: tag[1]}},
			}},
		}}})
	}
	for _, tag := range [][2]string{
		{"istio.canonical_revision", l.CanonicalRevision},
		{"istio.canonical_service", l.CanonicalService},
		{"istio.cluster_id", l.Cluster},
		{"istio.mesh_id", l.Mesh},
		{"istio.namespace", l.Namespace},
	} {
		if tag[1] == "" {
			continue // Envoy refuses an empty literal
		}
		t.CustomTags = append(t.CustomTags, &tracingv3.CustomTag{Tag: tag[0], Type: &tracingv3.CustomTag_Literal_{Literal: &tracingv3.CustomTag_Literal{Value: tag[1]}}})
	}
	return t
}

func sampling(m *mesh.Config, own string) float64 {
	if v, err := strconv.ParseFloat(own, 64); err == nil && v >= 0 && v <= 100 {
		return v
	}
	if v := m.GetDefaultConfig().GetTracing().GetSampling(); v > 0 {
		return min(v, 100)
	}
	return defaultSampling
}
