package translate

import (
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Unsupported returns a finding for the fields of an object that translation does not support yet: they have no effect,
// or not the intended one. It reports false if all fields are supported.
func Unsupported(o *kinds.Object) (diag.Diagnostic, bool) {
	d := diag.Diagnostic{Severity: diag.Warning, Code: "NotImplemented"}
	d.Field, d.Message, d.Fix = unsupported(o)
	if d.Message == "" {
		return d, false
	}
	d.Object = o.String()
	return d, true
}

func unsupported(o *kinds.Object) (field, message, fix string) {
	switch o.Kind {
	case kinds.AuthorizationPolicy, kinds.RequestAuthentication:
		message, fix = "this version cannot enforce it, so every request to the workloads that it selects is refused", "remove it to let requests through without it"
	case kinds.EnvoyFilter, kinds.Telemetry, kinds.WasmPlugin, kinds.TrafficExtension, kinds.ProxyConfig,
		kinds.GatewayClass, kinds.KubeGateway, kinds.HTTPRoute, kinds.GRPCRoute, kinds.TLSRoute, kinds.TCPRoute, kinds.ReferenceGrant, kinds.BackendTLSPolicy:
		message = "this version reads it and does nothing with it"
	case kinds.Gateway:
		var closed []string
		for _, s := range o.Spec.(*networkingv1.Gateway).Servers {
			if p := portProtocol(s.GetPort().GetProtocol(), registry.TCP); !p.IsHTTP() && !autoPassthrough(s) {
				closed = append(closed, s.GetPort().GetName())
			}
		}
		if closed != nil {
			field = "spec.servers"
			message = "this version opens plain HTTP servers and those of mode AUTO_PASSTHROUGH alone; these ports stay closed: " + strings.Join(closed, ", ")
		}
	case kinds.ServiceEntry:
		if o.Spec.(*networkingv1.ServiceEntry).Resolution == networkingv1alpha3.ServiceEntry_DYNAMIC_DNS {
			field, message = "spec.resolution", "this version does not resolve host names for each request: the service has no endpoints"
		}
	case kinds.DestinationRule:
		if o.Spec.(*networkingv1.DestinationRule).GetTrafficPolicy().GetLoadBalancer().GetLocalityLbSetting() != nil {
			field, message = "spec.trafficPolicy.loadBalancer.localityLbSetting", "this version does not balance load by locality: all endpoints are equal"
		}
	case kinds.VirtualService:
		spec := o.Spec.(*networkingv1.VirtualService)
		switch {
		case len(spec.Tls) > 0:
			field = "spec.tls"
		case len(spec.Tcp) > 0:
			field = "spec.tcp"
		default:
			return "", "", ""
		}
		message = "this version routes HTTP alone: other connections go to the service whose address they were made to"
	}
	return field, message, fix
}

// UnsupportedMesh returns a finding for each field of a mesh configuration that is not supported yet.
func UnsupportedMesh(c *mesh.Config) (list []diag.Diagnostic) {
	say := func(set bool, field, message string) {
		if set {
			list = append(list, diag.Diagnostic{
				Severity: diag.Warning, Code: "NotImplemented", Object: "MeshConfig", Field: field, Message: "this version " + message,
			})
		}
	}
	l := c.GetLocalityLbSetting()
	say(c.GetAccessLogFile() != "", "accessLogFile", "writes no access logs")
	say(len(c.GetDefaultProviders().GetAccessLogging()) > 0, "defaultProviders.accessLogging", "writes no access logs")
	say(len(c.GetDefaultProviders().GetTracing()) > 0, "defaultProviders.tracing", "sends traces to no provider")
	say(c.GetMeshMTLS() != nil, "meshMTLS", "leaves the versions and ciphers of TLS as they are")
	say(c.GetTlsDefaults() != nil, "tlsDefaults", "leaves the versions and ciphers of TLS as they are")
	say(len(l.GetDistribute())+len(l.GetFailover())+len(l.GetFailoverPriority()) > 0, "localityLbSetting", "does not balance load by locality: all endpoints are equal")
	return list
}
