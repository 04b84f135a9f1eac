package registry

import "strings"

// ParseProtocolOr returns the protocol that users write, or another one where they write none that is known.
func ParseProtocolOr(s string, otherwise Protocol) Protocol {
	if p := ParseProtocol(s); p != Unsupported {
		return p
	}
	return otherwise
}

// ParseProtocol returns the protocol that users write, in any case. An unknown one is Unsupported.
func ParseProtocol(s string) Protocol {
	switch strings.ToLower(s) {
	case "http":
		return HTTP
	case "https":
		return HTTPS
	case "http2":
		return HTTP2
	case "grpc":
		return GRPC
	case "grpc-web":
		return GRPCWeb
	case "http_proxy":
		return HTTPProxy
	case "tcp":
		return TCP
	case "tls":
		return TLS
	case "mongo":
		return Mongo
	case "redis":
		return Redis
	case "mysql":
		return MySQL
	case "udp":
		return UDP
	}
	return Unsupported
}
