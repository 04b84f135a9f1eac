package eds

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/istiod-lite/istiod-lite/registry"
)

// Most bytes of the configuration are endpoints, and a tree of messages for each would take a kilobyte of garbage. So
// they are written directly in the wire format, with the same bytes as protobuf's encoder: fields by number, fields of
// a oneof after the others, maps by key.

// appendEndpoint appends an LbEndpoint. tls makes Envoy use mTLS for it.
func appendEndpoint(dst []byte, e *registry.Endpoint, weight uint32, tls bool) []byte {
	if e.HealthKnown {
		status := [...]corev3.HealthStatus{corev3.HealthStatus_HEALTHY, corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_DRAINING}[e.Health]
		dst = appendNumber(dst, 2, uint64(status))
	}
	dst = appendMessage(dst, 3, func(b []byte) []byte {
		if tls {
			b = appendFilterMetadata(b, tlsMatch, "tlsMode", "istio")
		}
		return appendFilterMetadata(b, "istio", "workload", telemetryName(e))
	})
	dst = appendMessage(dst, 4, func(b []byte) []byte { return appendNumber(b, 1, uint64(weight)) })
	return appendMessage(dst, 1, func(b []byte) []byte {
		return appendMessage(b, 1, func(b []byte) []byte { return appendAddress(b, e) })
	})
}

// appendAddress appends the one field of an Address that is set.
func appendAddress(dst []byte, e *registry.Endpoint) []byte {
	if path, ok := strings.CutPrefix(e.Address, "unix://"); ok {
		return appendMessage(dst, 2, func(b []byte) []byte { return appendText(b, 1, path) })
	}
	return appendMessage(dst, 1, func(b []byte) []byte {
		b = appendText(b, 2, e.Address)
		return protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), uint64(e.Port))
	})
}

// appendFilterMetadata appends an entry of a Metadata: a Struct with one string.
func appendFilterMetadata(dst []byte, filter, field, value string) []byte {
	return appendMessage(dst, 1, func(b []byte) []byte {
		b = appendText(b, 1, filter)
		return appendMessage(b, 2, func(b []byte) []byte {
			return appendMessage(b, 1, func(b []byte) []byte {
				b = appendText(b, 1, field)
				return appendMessage(b, 2, func(b []byte) []byte {
					return protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), value)
				})
			})
		})
	})
}

func appendNumber(dst []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), n)
}

func appendText(dst []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return dst
	}
	return protowire.AppendString(protowire.AppendTag(dst, field, protowire.BytesType), s)
}

// appendMessage appends a field with a length. fill appends its content.
func appendMessage(dst []byte, field protowire.Number, fill func([]byte) []byte) []byte {
	dst = append(protowire.AppendTag(dst, field, protowire.BytesType), 0)
	begin := len(dst)
	dst = fill(dst)
	size := uint64(len(dst) - begin)
	if more := protowire.SizeVarint(size) - 1; more > 0 {
		dst = slices.Insert(dst, begin, make([]byte, more)...)
	}
	protowire.AppendVarint(dst[:begin-1], size)
	return dst
}
