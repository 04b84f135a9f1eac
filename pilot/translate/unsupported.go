package translate

import (
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/translate/gateway"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Unsupported returns a finding for each field of an object that translation itself reads, not a feature, and does not
// support.
func Unsupported(o *kinds.Object) []diag.Diagnostic {
	switch spec := o.Spec.(type) {
	case *networkingv1.Sidecar:
		return feature.Unsupported("spec", spec, lacks)
	case *networkingv1.Gateway:
		return append(feature.Unsupported("spec", spec, lacks), closedServers(spec)...)
	case *networkingv1.ServiceEntry:
		if spec.Resolution == networkingv1alpha3.ServiceEntry_DYNAMIC_DNS {
			return []diag.Diagnostic{feature.NotImplemented("spec.resolution", "host names are not resolved for each request: the service has no endpoints", "use resolution DNS")}
		}
	}
	return nil
}

// lacks returns what is not done of a field, and what to do about it, as feature.Unsupported takes it.
func lacks(field string) (message, fix string) {
	switch field {
	case "IstioIngressListener.tls":
		message, fix = "the port takes the mesh's own mutual TLS alone, and no other connection", "remove it, and let a gateway terminate TLS"
	case "SidecarPort.targetPort", "Port.targetPort", "Server.defaultEndpoint":
		message = "nobody reads it"
	}
	return message, fix
}

// closedServers returns a finding if servers of a Gateway stay closed.
func closedServers(g *networkingv1.Gateway) []diag.Diagnostic {
	var closed []string
	for _, s := range g.Servers {
		if p := registry.ParseProtocolOr(s.GetPort().GetProtocol(), registry.TCP); !p.IsHTTP() && !gateway.AutoPassthrough(s) {
			closed = append(closed, s.GetPort().GetName())
		}
	}
	if closed == nil {
		return nil
	}
	message := "these ports are neither plain HTTP nor of mode AUTO_PASSTHROUGH, and stay closed: " + strings.Join(closed, ", ")
	return []diag.Diagnostic{feature.NotImplemented("spec.servers", message, "open other ports, or remove them")}
}

// UnsupportedMesh returns a finding for each field of a mesh configuration that translation itself does not support.
func UnsupportedMesh(c *mesh.Config) []diag.Diagnostic {
	list := feature.Unsupported("", c.Changed(), lacksMesh)
	if c.GetOutboundTrafficPolicy().GetMode() == meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
		list = append(list, feature.NotImplemented("outboundTrafficPolicy.mode", "hosts without a service are not resolved, and calls to them fail", "use ALLOW_ANY"))
	}
	return list
}

// lacksMesh returns what is not done of a field of a mesh configuration, and what to do about it.
func lacksMesh(field string) (message, fix string) {
	switch field {
	case "MeshConfig.ingressClass", "MeshConfig.ingressService", "MeshConfig.ingressControllerMode", "MeshConfig.ingressSelector":
		message, fix = "no Ingress is read", "use Gateways"
	case "MeshConfig.hboneIdleTimeout", "MeshConfig.serviceScopeConfigs":
		message = "there is no ambient mesh"
	case "MeshConfig.serviceEntryVisibility":
		message, fix = "ServiceEntries are visible as their exportTo says", "use exportTo and defaultServiceExportTo"
	case "OutboundTrafficPolicy.tls":
		message = "calls to hosts without a service are passed on as they are"
	case "ConfigSource.subscribedResources":
		message = "all kinds are read"
	case "ProxyConfig.gatewayTopology":
		message = "gateways take the address and the certificate of a client from the connection"
	case "ProxyConfig.connectionSettings":
		message = "the limits and timeouts of connections are the usual ones"
	case "ProxyHeaders.forwardedClientCert", "ProxyHeaders.setCurrentClientCertDetails", "ProxyHeaders.requestId", "ProxyHeaders.server",
		"ProxyHeaders.envoyDebugHeaders", "ProxyHeaders.metadataExchangeHeaders", "ProxyHeaders.preserveHttp1HeaderCase",
		"ProxyHeaders.xForwardedHost", "ProxyHeaders.xForwardedPort":
		message = "proxies add and remove the usual headers"
	}
	return message, fix
}
