package http3

import (
	"fmt"
	"slices"
	"strings"

	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// FilterKinds returns the kinds whose objects may add connection filters.
func FilterKinds() []*kinds.Kind {
	return []*kinds.Kind{kinds.WasmPlugin, kinds.TrafficExtension, kinds.EnvoyFilter}
}

// Filters returns the field of an object that adds connection filters to a port of a gateway's workload, or merges
// filters, chains or TLS settings into its listener, or "" if it does neither. Over QUIC a connection filter sees no
// data, Envoy accepts few listener filters, and TLS settings are other ones, so connections that the object should
// refuse would be accepted. A patch that names the listener for QUIC is exempt.
func Filters(o *kinds.Object, port uint32) (field string) {
	switch s := o.Spec.(type) {
	case *extensionsv1alpha1.WasmPlugin:
		if s.Type == extensionsv1alpha1.PluginType_NETWORK && matches(s.Match, port) {
			return "spec.type"
		}
	case *extensionsv1alpha1.TrafficExtension:
		if w := s.GetWasm(); w != nil && w.Type == extensionsv1alpha1.PluginType_NETWORK && matches(s.Match, port) {
			return "spec.wasm.type"
		}
	case *networkingv1alpha3.EnvoyFilter:
		for i, p := range s.ConfigPatches {
			if inserts(p, port) {
				return fmt.Sprintf("spec.configPatches[%d]", i)
			}
		}
	}
	return ""
}

// matches reports whether an extension's matches include a port of a gateway, which is the client of the services
// behind it.
func matches[M interface {
	GetMode() typev1beta1.WorkloadMode
	GetPorts() []*typev1beta1.PortSelector
}](all []M, port uint32) bool {
	return len(all) == 0 || slices.ContainsFunc(all, func(m M) bool {
		return m.GetMode() != typev1beta1.WorkloadMode_SERVER &&
			(len(m.GetPorts()) == 0 || slices.ContainsFunc(m.GetPorts(), func(p *typev1beta1.PortSelector) bool { return p.GetNumber() == port }))
	})
}

// inserts reports whether a patch adds a filter, a chain or TLS settings to the listener for QUIC of a port.
func inserts(p *networkingv1alpha3.EnvoyFilter_EnvoyConfigObjectPatch, port uint32) bool {
	merges := false
	switch p.GetPatch().GetOperation() {
	case networkingv1alpha3.EnvoyFilter_Patch_MERGE, networkingv1alpha3.EnvoyFilter_Patch_MERGE_AND_REPLACE_LIST:
		merges = true
	case networkingv1alpha3.EnvoyFilter_Patch_ADD, networkingv1alpha3.EnvoyFilter_Patch_INSERT_BEFORE,
		networkingv1alpha3.EnvoyFilter_Patch_INSERT_AFTER, networkingv1alpha3.EnvoyFilter_Patch_INSERT_FIRST:
	default:
		return false
	}
	switch p.GetMatch().GetContext() {
	case networkingv1alpha3.EnvoyFilter_ANY, networkingv1alpha3.EnvoyFilter_GATEWAY:
	default:
		return false
	}
	m := p.GetMatch().GetListener()
	if m.GetName() != "" || m.GetPortNumber() != 0 && m.GetPortNumber() != port {
		return false
	}
	c := m.GetFilterChain() // its chains have only a connection manager, and match server names
	socket := c.GetTransportSocket()
	inChain := (socket == "" || socket == "envoy.transport_sockets.quic") &&
		c.GetTransportProtocol() == "" && c.GetApplicationProtocols() == "" && c.GetDestinationPort() == 0
	switch p.GetApplyTo() {
	case networkingv1alpha3.EnvoyFilter_LISTENER_FILTER:
		return !merges && m.GetListenerFilter() == "" // it has no listener filter to insert next to
	case networkingv1alpha3.EnvoyFilter_NETWORK_FILTER:
		name := c.GetFilter().GetName()
		return !merges && inChain && (name == "" || strings.HasSuffix(name, "http_connection_manager"))
	case networkingv1alpha3.EnvoyFilter_LISTENER:
		return merges && sets(p, "listenerFilters", "filterChains", "defaultFilterChain", "filterChainMatcher")
	case networkingv1alpha3.EnvoyFilter_FILTER_CHAIN:
		return !merges || inChain && sets(p, "filters", "transportSocket")
	}
	return false
}

// sets reports whether the value of a patch has one of some fields. Field names may have underscores or capital
// letters.
func sets(p *networkingv1alpha3.EnvoyFilter_EnvoyConfigObjectPatch, fields ...string) bool {
	for name := range p.GetPatch().GetValue().GetFields() {
		plain := strings.ReplaceAll(name, "_", "")
		if slices.ContainsFunc(fields, func(f string) bool { return strings.EqualFold(f, plain) }) {
			return true
		}
	}
	return false
}
