package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Protocol returns the protocol of a service port. A UDP port is UDP. Otherwise the appProtocol decides, or without one
// the name up to the first hyphen. Without either, well-known ports of protocols in which the server speaks first are
// plain TCP, because sniffing would wait for the client forever.
func Protocol(p *corev1.ServicePort) registry.Protocol {
	if p.Protocol == corev1.ProtocolUDP {
		return registry.UDP
	}
	name := p.Name
	if p.AppProtocol != nil {
		name = *p.AppProtocol
		switch name {
		case names.ProtocolH2C:
			return registry.HTTP2
		case names.ProtocolWS:
			return registry.HTTP
		case names.ProtocolWSS:
			return registry.HTTPS
		}
	}
	name = strings.ToLower(name)
	if strings.HasPrefix(name, "grpc-web") {
		return registry.GRPCWeb
	}
	name, _, _ = strings.Cut(name, "-")
	if protocol := registry.ParseProtocol(name); protocol != registry.Unsupported {
		return protocol
	}
	switch p.Port {
	case 25, 53, 3306, 27017:
		return registry.TCP
	}
	return registry.Unsupported
}
