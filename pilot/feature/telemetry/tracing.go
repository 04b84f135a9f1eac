package telemetry

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1 "istio.io/api/telemetry/v1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// defaultSampling is the default percentage of traced requests.
const defaultSampling = 1

// dryRun holds the tags for the results of authorization policies in dry-run mode. Each has the key under which the
// RBAC filter stores the result in the request's metadata.
var dryRun = [][2]string{
	{"istio.authorization.dry_run.allow_policy.name", "istio_dry_run_allow_shadow_effective_policy_id"},
	{"istio.authorization.dry_run.allow_policy.result", "istio_dry_run_allow_shadow_engine_result"},
	{"istio.authorization.dry_run.deny_policy.name", "istio_dry_run_deny_shadow_effective_policy_id"},
	{"istio.authorization.dry_run.deny_policy.result", "istio_dry_run_deny_shadow_engine_result"},
}

// spans are the settings of objects for the traces of a side. Unset fields are nil.
type spans struct {
	provider  string // empty for none
	said      bool   // whether an object or a default provider configures traces
	disabled  bool
	sampling  *float64
	tags      map[string]*telemetryv1.Tracing_CustomTag
	istioTags *bool
	noContext bool
	requestID bool // whether the request ID decides what is sampled
}

// spansOf returns the settings for the traces of a side. Each field comes from the last object that sets it.
func spansOf(m *mesh.Config, s feature.Selection, on side) spans {
	out := spans{requestID: true}
	if names := m.GetDefaultProviders().GetTracing(); len(names) > 0 {
		out.said, out.provider = true, names[0]
	}
	for o := range s.Objects.All {
		for _, e := range spec(o).GetTracing() {
			out.said = true
			if !covers(e.GetMatch().GetMode(), on) {
				continue
			}
			if len(e.Providers) > 0 {
				out.provider = e.Providers[0].GetName()
			}
			if e.DisableSpanReporting != nil {
				out.disabled = e.DisableSpanReporting.Value
			}
			if e.RandomSamplingPercentage != nil {
				out.sampling = &e.RandomSamplingPercentage.Value
			}
			if len(e.CustomTags) > 0 {
				out.tags = e.CustomTags
			}
			if e.EnableIstioTags != nil {
				out.istioTags = &e.EnableIstioTags.Value
			}
			if e.DisableContextPropagation != nil {
				out.noContext = e.DisableContextPropagation.Value
			}
			if e.UseRequestIdForTraceSampling != nil {
				out.requestID = e.UseRequestIdForTraceSampling.Value
			}
		}
	}
	return out
}

// trace sets the tracing of a connection manager. Without objects and default providers, spans go to the tracer in the
// proxy's bootstrap.
func trace(c feature.Chain, m *hcmv3.HttpConnectionManager) {
	s := spansOf(c.Mesh, c.Selection, sideOf(c.Direction))
	if !s.requestID { // true by default
		m.RequestIdExtension = &hcmv3.RequestIDExtension{
			TypedConfig: envoy.Any(&uuidv3.UuidRequestIdConfig{UseRequestIdForTraceSampling: envoy.Bool(false)}),
		}
	}
	own := c.Mesh.Tracing(c.Tags.Tracing)
	t := &hcmv3.HttpConnectionManager_Tracing{
		ClientSampling:       &typev3.Percent{Value: 100},
		RandomSampling:       &typev3.Percent{Value: sampling(own, s.sampling)},
		OverallSampling:      &typev3.Percent{Value: 100},
		CustomTags:           customTags(c, own, s),
		NoContextPropagation: s.noContext,
	}
	if n := own.GetMaxPathTagLength(); n > 0 {
		t.MaxPathTagLength = envoy.UInt32(n)
	}
	switch {
	case s.disabled:
		return
	case !s.said:
		if c.Mesh.GetEnableTracing() {
			m.Tracing = t
		}
		return
	}
	p := find(c.Selection, s.provider)
	if p == nil || !tracer(p, c, t) {
		return
	}
	if c.Direction == feature.Gateway {
		t.SpawnUpstreamSpan = envoy.Bool(true)
	}
	m.Tracing = t
}

// customTags returns the tags of spans, sorted by name. Tags of an object replace those of the mesh's proxy
// configuration.
func customTags(c feature.Chain, own *meshv1alpha1.Tracing, s spans) []*tracingv3.CustomTag {
	all := map[string]*tracingv3.CustomTag{}
	istio := own.GetEnableIstioTags() == nil || own.EnableIstioTags.Value
	if s.istioTags != nil {
		istio = *s.istioTags
	}
	if istio {
		istioTags(c.Tags, all)
	}
	of := own.GetCustomTags()
	if len(s.tags) > 0 {
		of = nil
	}
	for name, t := range of {
		tag := &tracingv3.CustomTag{Tag: name}
		switch k := t.GetType().(type) {
		case *meshv1alpha1.Tracing_CustomTag_Literal:
			literal(tag, k.Literal.GetValue())
		case *meshv1alpha1.Tracing_CustomTag_Environment:
			environment(tag, k.Environment.GetName(), k.Environment.GetDefaultValue())
		case *meshv1alpha1.Tracing_CustomTag_Header:
			header(tag, k.Header.GetName(), k.Header.GetDefaultValue())
		}
		all[name] = tag
	}
	for name, t := range s.tags {
		tag := &tracingv3.CustomTag{Tag: name}
		switch k := t.GetType().(type) {
		case *telemetryv1.Tracing_CustomTag_Literal:
			literal(tag, k.Literal.GetValue())
		case *telemetryv1.Tracing_CustomTag_Environment:
			environment(tag, k.Environment.GetName(), k.Environment.GetDefaultValue())
		case *telemetryv1.Tracing_CustomTag_Header:
			header(tag, k.Header.GetName(), k.Header.GetDefaultValue())
		case *telemetryv1.Tracing_CustomTag_Formatter:
			if k.Formatter.GetValue() != "" {
				tag.Type = &tracingv3.CustomTag_Value{Value: feature.Commands(c.Capabilities, k.Formatter.GetValue())}
			}
		}
		all[name] = tag
	}
	var list []*tracingv3.CustomTag
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if tag := all[name]; name != "" && tag.Type != nil { // Envoy rejects others
			list = append(list, tag)
		}
	}
	return list
}

// istioTags adds the default tags of spans: the results of dry runs, and literals.
func istioTags(l feature.Tags, all map[string]*tracingv3.CustomTag) {
	for _, tag := range dryRun {
		all[tag[0]] = &tracingv3.CustomTag{Tag: tag[0], Type: &tracingv3.CustomTag_Metadata_{Metadata: &tracingv3.CustomTag_Metadata{
			Kind: &metadatav3.MetadataKind{Kind: &metadatav3.MetadataKind_Request_{Request: &metadatav3.MetadataKind_Request{}}},
			MetadataKey: &metadatav3.MetadataKey{Key: "envoy.filters.http.rbac", Path: []*metadatav3.MetadataKey_PathSegment{
				{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: tag[1]}},
			}},
		}}}
	}
	for name, value := range map[string]string{
		"istio.canonical_revision": l.CanonicalRevision,
		"istio.canonical_service":  l.CanonicalService,
		"istio.cluster_id":         l.Cluster,
		"istio.mesh_id":            l.Mesh,
		"istio.namespace":          l.Namespace,
	} {
		tag := &tracingv3.CustomTag{Tag: name}
		literal(tag, value)
		all[name] = tag
	}
}

func literal(tag *tracingv3.CustomTag, value string) {
	if value != "" { // Envoy rejects an empty value
		tag.Type = &tracingv3.CustomTag_Literal_{Literal: &tracingv3.CustomTag_Literal{Value: value}}
	}
}

func environment(tag *tracingv3.CustomTag, name, otherwise string) {
	if name != "" {
		tag.Type = &tracingv3.CustomTag_Environment_{Environment: &tracingv3.CustomTag_Environment{Name: name, DefaultValue: otherwise}}
	}
}

func header(tag *tracingv3.CustomTag, name, otherwise string) {
	if name != "" && !strings.ContainsAny(name, "\r\n\x00") {
		tag.Type = &tracingv3.CustomTag_RequestHeader{RequestHeader: &tracingv3.CustomTag_Header{Name: name, DefaultValue: otherwise}}
	}
}

// sampling returns the percentage of traced requests: from an object, or else from the configuration of the proxy.
func sampling(own *meshv1alpha1.Tracing, said *float64) float64 {
	if said != nil {
		return max(0, min(*said, 100))
	}
	return min(cmp.Or(max(own.GetSampling(), 0), defaultSampling), 100)
}
