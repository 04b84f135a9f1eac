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

// Filters returns the field of an object that adds connection filters to a port of a gateway's workload, or "" if it
// adds none. Over QUIC such a filter sees no data, and Envoy accepts few listener filters there, so connections that
// the filter should refuse would be accepted. A patch that names the listener for QUIC is exempt.
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

// inserts reports whether a patch adds a filter to the listener for QUIC of a port, or to its filter chains.
func inserts(p *networkingv1alpha3.EnvoyFilter_EnvoyConfigObjectPatch, port uint32) bool {
	switch p.GetPatch().GetOperation() {
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
	switch p.GetApplyTo() {
	case networkingv1alpha3.EnvoyFilter_LISTENER_FILTER:
		return m.GetListenerFilter() == "" // it has no listener filter to insert next to
	case networkingv1alpha3.EnvoyFilter_NETWORK_FILTER:
		c := m.GetFilterChain() // its chains have only a connection manager, and match server names
		name, socket := c.GetFilter().GetName(), c.GetTransportSocket()
		return (socket == "" || socket == "envoy.transport_sockets.quic") &&
			c.GetTransportProtocol() == "" && c.GetApplicationProtocols() == "" && c.GetDestinationPort() == 0 &&
			(name == "" || strings.HasSuffix(name, "http_connection_manager"))
	}
	return false
}
