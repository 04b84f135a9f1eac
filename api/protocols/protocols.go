package protocols

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Protocol is the protocol of a port, in Istio's spelling.
type Protocol string

// Protocols. Unsupported means that Envoy sniffs the protocol.
const (
	HTTP        Protocol = "HTTP"
	HTTPS       Protocol = "HTTPS"
	HTTP2       Protocol = "HTTP2"
	GRPC        Protocol = "GRPC"
	GRPCWeb     Protocol = "GRPC-Web"
	HTTPProxy   Protocol = "HTTP_PROXY"
	TCP         Protocol = "TCP"
	TLS         Protocol = "TLS"
	Mongo       Protocol = "Mongo"
	Redis       Protocol = "Redis"
	MySQL       Protocol = "MySQL"
	UDP         Protocol = "UDP"
	HTTP3       Protocol = "HTTP3" // used by gateways only: no service port has it
	Unsupported Protocol = "UnsupportedProtocol"
)

// IsHTTP reports whether Envoy routes each request of the protocol.
func (p Protocol) IsHTTP() bool {
	switch p {
	case HTTP, HTTP2, GRPC, GRPCWeb, HTTPProxy:
		return true
	}
	return false
}

// IsHTTP2 reports whether the protocol is HTTP/2 on the wire.
func (p Protocol) IsHTTP2() bool { return p == HTTP2 || p == GRPC || p == GRPCWeb }

// IsTLS reports whether connections of the protocol begin with a ClientHello.
func (p Protocol) IsTLS() bool { return p == HTTPS || p == TLS }

// IsTCP reports whether the protocol is forwarded as bytes.
func (p Protocol) IsTCP() bool {
	switch p {
	case TCP, HTTPS, TLS, Mongo, Redis, MySQL:
		return true
	}
	return false
}

// Sniffed reports whether Envoy must detect the protocol.
func (p Protocol) Sniffed() bool { return p == Unsupported }

// ParseOr parses the name of a protocol. It returns otherwise for an empty or unknown name.
func ParseOr(s string, otherwise Protocol) Protocol {
	if p := Parse(s); p != Unsupported {
		return p
	}
	return otherwise
}

// Parse parses the name of a protocol, ignoring case. It returns Unsupported for an unknown name.
func Parse(s string) Protocol {
	return cmp.Or(parsed[strings.ToLower(s)], Unsupported)
}

var parsed = map[string]Protocol{
	"http": HTTP, "https": HTTPS, "http2": HTTP2, "grpc": GRPC, "grpc-web": GRPCWeb, "http_proxy": HTTPProxy,
	"tcp": TCP, "tls": TLS, "mongo": Mongo, "redis": Redis, "mysql": MySQL, "udp": UDP,
}

// OfPort returns the protocol of a port of a Service. A UDP port is UDP. Otherwise the appProtocol decides, or without
// one the name up to the first hyphen. Without either, well-known ports of protocols in which the server speaks first
// are plain TCP, because sniffing would wait for the client forever.
func OfPort(p *corev1.ServicePort) Protocol {
	if p.Protocol == corev1.ProtocolUDP {
		return UDP
	}
	name := p.Name
	if p.AppProtocol != nil {
		name = *p.AppProtocol
		switch name {
		case names.ProtocolH2C:
			return HTTP2
		case names.ProtocolWS:
			return HTTP
		case names.ProtocolWSS:
			return HTTPS
		}
	}
	name = strings.ToLower(name)
	if strings.HasPrefix(name, "grpc-web") {
		return GRPCWeb
	}
	name, _, _ = strings.Cut(name, "-")
	if protocol := Parse(name); protocol != Unsupported {
		return protocol
	}
	switch p.Port {
	case 25, 53, 3306, 27017:
		return TCP
	}
	return Unsupported
}
