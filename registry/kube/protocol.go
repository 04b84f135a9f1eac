package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/registry"
)

// Protocol returns the protocol of a service port: UDP by its transport; else by its appProtocol, which hides the name;
// else by the name up to the first hyphen; else, for the ports of protocols in which the server speaks first, plain
// TCP, because sniffing would wait for the client for ever.
func Protocol(p *corev1.ServicePort) registry.Protocol {
	if p.Protocol == corev1.ProtocolUDP {
		return registry.UDP
	}
	said := p.Name
	if p.AppProtocol != nil {
		said = *p.AppProtocol
		switch said {
		case "kubernetes.io/h2c":
			return registry.HTTP2
		case "kubernetes.io/ws":
			return registry.HTTP
		case "kubernetes.io/wss":
			return registry.HTTPS
		}
	}
	said = strings.ToLower(said)
	if strings.HasPrefix(said, "grpc-web") {
		return registry.GRPCWeb
	}
	said, _, _ = strings.Cut(said, "-")
	if protocol := registry.ParseProtocol(said); protocol != registry.Unsupported {
		return protocol
	}
	switch p.Port {
	case 25, 53, 3306, 27017:
		return registry.TCP
	}
	return registry.Unsupported
}
