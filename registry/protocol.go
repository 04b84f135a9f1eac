package registry

import (
	"cmp"
	"strings"
)

// ParseProtocolOr parses the name of a protocol. It returns otherwise for an empty or unknown name.
func ParseProtocolOr(s string, otherwise Protocol) Protocol {
	if p := ParseProtocol(s); p != Unsupported {
		return p
	}
	return otherwise
}

// ParseProtocol parses the name of a protocol, ignoring case. It returns Unsupported for an unknown name.
func ParseProtocol(s string) Protocol {
	return cmp.Or(protocols[strings.ToLower(s)], Unsupported)
}

var protocols = map[string]Protocol{
	"http": HTTP, "https": HTTPS, "http2": HTTP2, "grpc": GRPC, "grpc-web": GRPCWeb, "http_proxy": HTTPProxy,
	"tcp": TCP, "tls": TLS, "mongo": Mongo, "redis": Redis, "mysql": MySQL, "udp": UDP,
}
