package translate

import (
	"strings"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/authz"
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Unsupported returns a finding for each field of an object that translation does not support: it has no effect, or not
// the intended one.
func Unsupported(o *kinds.Object) []diag.Diagnostic {
	var list []diag.Diagnostic
	switch spec := o.Spec.(type) {
	case *networkingv1.DestinationRule:
		list = destinationrule.Unsupported(spec)
	case *securityv1.AuthorizationPolicy, *securityv1.RequestAuthentication:
		list = []diag.Diagnostic{authz.Unsupported(o)}
	case *networkingv1.VirtualService, *networkingv1.Gateway, *networkingv1.ServiceEntry, *networkingv1.Sidecar, *networkingv1.WorkloadEntry:
		list = feature.Unsupported("spec", spec.(proto.Message), lacks)
	}
	if field, message, fix := unsupported(o); message != "" {
		list = append(list, diag.Diagnostic{Severity: diag.Warning, Code: "NotImplemented", Field: field, Message: message, Fix: fix})
	}
	for i := range list {
		list[i].Object = o.String()
	}
	return list
}

// lacks returns what is not done of a field, and what to do about it, as feature.Unsupported takes it.
func lacks(field string) (message, fix string) {
	switch field {
	case "VirtualService.tls", "VirtualService.tcp":
		message, fix = "connections that are not HTTP go to the service whose address they were made to", "route HTTP alone"
	case "Delay.exponentialDelay":
		message, fix = "requests are delayed by fixedDelay alone", "use fixedDelay"
	case "Abort.http2Error":
		message, fix = "requests are aborted by httpStatus and grpcStatus alone", "use httpStatus"
	case "IstioIngressListener.tls":
		message, fix = "the port takes the mesh's own mutual TLS alone, and no other connection", "remove it, and let a gateway terminate TLS"
	case "HTTPSettings.h2UpgradePolicy": // of a Sidecar: a DestinationRule has its own table
		message, fix = "requests to the workload keep their protocol", "write it in a DestinationRule"
	case "SidecarPort.targetPort", "Port.targetPort", "Server.defaultEndpoint":
		message = "nobody reads it"
	default:
		return destinationrule.Lacks(field)
	}
	return message, fix
}

// unsupported returns the finding about what an object asks for as a whole.
func unsupported(o *kinds.Object) (field, message, fix string) {
	switch o.Kind {
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
