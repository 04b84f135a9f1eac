package registry

import (
	"cmp"
	"strings"
)

// ParseProtocolOr returns the protocol that users write, or another one where they write none that is known.
func ParseProtocolOr(s string, otherwise Protocol) Protocol {
	if p := ParseProtocol(s); p != Unsupported {
		return p
	}
	return otherwise
}

// ParseProtocol returns the protocol that users write, in any case. An unknown one is Unsupported.
func ParseProtocol(s string) Protocol {
	return cmp.Or(protocols[strings.ToLower(s)], Unsupported)
}

var protocols = map[string]Protocol{
	"http": HTTP, "https": HTTPS, "http2": HTTP2, "grpc": GRPC, "grpc-web": GRPCWeb, "http_proxy": HTTPProxy,
	"tcp": TCP, "tls": TLS, "mongo": Mongo, "redis": Redis, "mysql": MySQL, "udp": UDP,
}
