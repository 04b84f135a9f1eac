package load

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Type is a type of resources.
type Type int

// The types that a proxy subscribes to.
const (
	Clusters Type = iota
	Endpoints
	Listeners
	Routes
	VirtualHosts
	Secrets
	types
)

var typeURLs = [types]string{
	"type.googleapis.com/envoy.config.cluster.v3.Cluster",
	"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	"type.googleapis.com/envoy.config.listener.v3.Listener",
	"type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
	"type.googleapis.com/envoy.config.route.v3.VirtualHost",
	"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
}

// String returns the usual name of the discovery service.
func (t Type) String() string { return [...]string{"CDS", "EDS", "LDS", "RDS", "VHDS", "SDS"}[t] }

// URL returns the type URL in responses.
func (t Type) URL() string { return typeURLs[t] }

// Types returns all types, in the order in which a proxy asks for them.
func Types() []Type { return []Type{Clusters, Endpoints, Listeners, Routes, VirtualHosts, Secrets} }

// response holds the fields of a discovery response that a proxy reads. Its bodies point into the message.
type response struct {
	kind      Type
	version   string
	nonce     string
	resources []resource
	removed   []string
}

type resource struct {
	name, version string
	body          []byte
}

// parse decodes a response of either protocol. text converts bytes to names and versions.
func parse(message []byte, delta bool, text func([]byte) string) (r response, err error) {
	var typeURL string
	n := 0
	if err := fields(message, func(number protowire.Number, _ []byte, _ uint64) {
		if number == 2 {
			n++
		}
	}); err != nil {
		return r, err
	}
	r.resources = make([]resource, 0, n)
	err = fields(message, func(number protowire.Number, value []byte, _ uint64) {
		switch {
		case number == 1:
			r.version = string(value)
		case number == 2 && delta:
			r.resources = append(r.resources, resource{name: text(field(value, 3)), version: text(field(value, 1)), body: field(field(value, 2), 2)})
		case number == 2:
			body := field(value, 2)
			r.resources = append(r.resources, resource{name: text(field(body, 1)), body: body}) // the name is field 1 of each type
		case number == 4:
			typeURL = string(value)
		case number == 5:
			r.nonce = string(value)
		case number == 6 && delta:
			r.removed = append(r.removed, text(value))
		}
	})
	if err != nil {
		return r, err
	}
	for t, url := range typeURLs {
		if url == typeURL {
			r.kind = Type(t)
			return r, nil
		}
	}
	return r, fmt.Errorf("a response of type %q, which no proxy asked for", typeURL)
}

// edsCluster is the value of Cluster.type for clusters with endpoints from EDS.
const edsCluster = 3

// children returns the names of a type that a resource makes a proxy ask for: the assignment of a cluster, or the
// routes and secrets of a listener.
func (r resource) children(kind Type) []string {
	switch kind {
	case Endpoints:
		return assignments(r.body)
	case Routes:
		return routes(r.body)
	case Secrets:
		return secrets(r.body)
	default:
		return nil
	}
}

// assignments reads Cluster.name (1), type (2), and eds_cluster_config (3) with its service_name (2).
func assignments(cluster []byte) []string {
	var name, service []byte
	eds := false
	_ = fields(cluster, func(number protowire.Number, value []byte, n uint64) {
		switch number {
		case 1:
			name = value
		case 2:
			eds = n == edsCluster
		case 3:
			service = field(value, 2)
		}
	})
	if !eds {
		return nil
	}
	if len(service) > 0 {
		name = service
	}
	return []string{string(name)}
}

// routes reads Listener.filter_chains (3) and default_filter_chain (25). In a chain it reads the filters (3), in a
// filter typed_config (4), which is an Any, and in an HttpConnectionManager rds (3) with its route_config_name (2).
func routes(listener []byte) (names []string) {
	filter := func(number protowire.Number, value []byte, _ uint64) {
		if number != 3 {
			return
		}
		config := field(value, 4)
		if !strings.HasSuffix(string(field(config, 1)), ".HttpConnectionManager") {
			return
		}
		if name := field(field(field(config, 2), 3), 2); len(name) > 0 {
			names = append(names, string(name))
		}
	}
	_ = fields(listener, func(number protowire.Number, value []byte, _ uint64) {
		if number == 3 || number == 25 {
			_ = fields(value, filter)
		}
	})
	return names
}

// secretsOfControlPlane is the prefix of the names of secrets that a control plane sends. The agent has all others.
const secretsOfControlPlane = "kubernetes://"

// secrets reads Listener.filter_chains (3) with their transport_socket (6). Its typed_config (3) is an Any of a
// DownstreamTlsContext: common_tls_context (1), tls_certificate_sds_secret_configs (6), name (1).
func secrets(listener []byte) (names []string) {
	_ = fields(listener, func(number protowire.Number, chain []byte, _ uint64) {
		if number != 3 {
			return
		}
		_ = fields(field(field(field(field(chain, 6), 3), 2), 1), func(number protowire.Number, config []byte, _ uint64) {
			if name := string(field(config, 1)); number == 6 && strings.HasPrefix(name, secretsOfControlPlane) {
				names = append(names, name)
			}
		})
	})
	return names
}

// usesVHDS reports whether the virtual hosts of a RouteConfiguration come separately: RouteConfiguration.vhds (9).
func (r resource) usesVHDS() bool { return field(r.body, 9) != nil }

// field returns the last value of a field of bytes, or nil.
func field(message []byte, want protowire.Number) (found []byte) {
	_ = fields(message, func(number protowire.Number, value []byte, _ uint64) {
		if number == want {
			found = value
		}
	})
	return found
}

// fields calls visit for every field of bytes or varints.
func fields(message []byte, visit func(number protowire.Number, value []byte, varint uint64)) error {
	for len(message) > 0 {
		number, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("read a response: %w", protowire.ParseError(n))
		}
		message = message[n:]
		var value []byte
		var varint uint64
		switch wireType {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, wireType, message)
		}
		if n < 0 {
			return fmt.Errorf("read a response: %w", protowire.ParseError(n))
		}
		message = message[n:]
		if wireType == protowire.BytesType || wireType == protowire.VarintType {
			visit(number, value, varint)
		}
	}
	return nil
}

// codec encodes requests and leaves responses encoded.
type codec struct{}

// Name returns the name of the codec that servers know.
func (codec) Name() string { return "proto" }

// Marshal encodes a request.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("cannot send %T", v)
	}
	b, err := proto.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// Unmarshal returns the message in one piece. The receiver frees the buffer.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	to, ok := v.(*mem.Buffer)
	if !ok {
		return errors.New("responses are received as a mem.Buffer")
	}
	*to = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}
