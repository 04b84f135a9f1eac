package analysis

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// portNames reports ports of Services whose name does not state their protocol.
func (a *analysis) portNames() {
	for _, o := range a.services {
		if strings.HasPrefix(o.Namespace, "kube-") {
			continue
		}
		spec := &o.Spec.(*corev1.Service).Spec
		for i := range spec.Ports {
			p := &spec.Ports[i]
			if cmp.Or(p.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP {
				continue
			}
			said := protocolOf(p)
			field := indexed("spec.ports", i) + ".name"
			if p.Name == "" {
				field = indexed("spec.ports", i)
			}
			switch {
			case spec.Type == corev1.ServiceTypeExternalName && (said == "" || said == "tcp"):
				a.report(o, diag.Warning, codeExternalName, field, "name it for the protocol, such as https-"+cmp.Or(p.Name, "web"),
					"port %d of a Service of type ExternalName has no protocol but TCP: its listener takes what goes to other hosts on that port", p.Port)
			case said == "":
				a.report(o, diag.Info, codePortName, field,
					"begin its name with the protocol and a dash, such as http-"+cmp.Or(p.Name, "web")+", or set appProtocol",
					"the name of port %d does not say its protocol: proxies have to guess it", p.Port)
			}
		}
	}
}

// protocolOf returns the protocol that a port of a Service states, in lower case, or "" if it states none.
func protocolOf(p *corev1.ServicePort) string {
	if p.Protocol == corev1.ProtocolUDP {
		return "udp"
	}
	name := p.Name
	if p.AppProtocol != nil {
		name = strings.TrimPrefix(*p.AppProtocol, "kubernetes.io/")
		name = map[string]string{"h2c": "http2", "ws": "http", "wss": "https"}[name]
		name = cmp.Or(name, *p.AppProtocol)
	}
	name = strings.ToLower(name)
	for _, known := range []string{"grpc-web", "grpc", "http2", "https", "http", "hbone",
		"tcp", "tls", "udp", "mongo", "mysql", "redis", "doubletcp", "doublehbone"} {
		if name == known || strings.HasPrefix(name, known+"-") {
			return known
		}
	}
	return ""
}

// isHTTP reports whether proxies can route single requests of a protocol.
func isHTTP(protocol string) bool {
	return protocol == "http" || protocol == "http2" || protocol == "grpc" || protocol == "grpc-web"
}
