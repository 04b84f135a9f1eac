package analysis

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
)

// hbone is the protocol of the ports of waypoints, which no sidecar calls.
const hbone = "hbone"

// portNames reports ports of Services whose name does not state their protocol.
func (a *analysis) portNames() {
	for _, o := range a.services {
		spec := &o.Spec.(*corev1.Service).Spec
		if strings.HasPrefix(o.Namespace, "kube-") || spec.Type == corev1.ServiceTypeExternalName { // an alias has no ports of its own
			continue
		}
		for i := range spec.Ports {
			p := &spec.Ports[i]
			if cmp.Or(p.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP {
				continue
			}
			protocol := protocols.OfPort(p)
			if p.AppProtocol != nil && strings.EqualFold(*p.AppProtocol, hbone) || strings.HasPrefix(strings.ToLower(p.Name)+"-", hbone+"-") {
				continue
			}
			field := indexed("spec.ports", i) + ".name"
			if p.Name == "" {
				field = indexed("spec.ports", i)
			}
			switch {
			case protocol.Sniffed() && p.AppProtocol != nil:
				fix := "write http, tcp or another protocol"
				if known := "kubernetes.io/" + *p.AppProtocol; known == names.ProtocolH2C || known == names.ProtocolWS || known == names.ProtocolWSS {
					fix = "write " + known
				}
				a.report(o, diag.Info, codePortName, indexed("spec.ports", i)+".appProtocol", fix,
					"appProtocol %q of port %d is no protocol that proxies know: they have to guess the protocol", *p.AppProtocol, p.Port)
			case protocol.Sniffed():
				a.report(o, diag.Info, codePortName, field,
					"begin its name with the protocol and a dash, such as "+likelyProtocol(p.Name)+cmp.Or(p.Name, "web")+", or set appProtocol",
					"the name of port %d does not say its protocol: proxies have to guess it", p.Port)
			}
		}
	}
}

// likelyProtocol returns the prefix for the name of a port that its words suggest.
func likelyProtocol(name string) string {
	switch name = strings.ToLower(name); {
	case strings.Contains(name, "grpc"):
		return "grpc-"
	case strings.Contains(name, "h2c"), strings.Contains(name, "http2"):
		return "http2-"
	}
	return "http-"
}
