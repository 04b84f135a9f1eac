package feature

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// Hooks are what a feature adds to resources.
type Hooks struct {
	Transport *Transport
}

// Tags are the literals in the traces of a workload. Sampling is the proxy's own percentage, or empty for the mesh's.
type Tags struct {
	CanonicalService, CanonicalRevision, Cluster, Mesh, Namespace, Sampling string
}

// Transport secures the connections between the proxies of the mesh. At most one feature has it. Its Selection is made
// for endpoints too: how an endpoint is called follows from the objects that apply to its workload.
type Transport struct {
	// Mode returns how a workload takes connections on a port. Port 0 stands for all ports without a mode of their own.
	Mode func(s Selection, port uint32) Mode
	// Ports returns the ports that have a mode of their own, ascending.
	Ports func(s Selection) []uint32
	// Downstream returns the transport socket of a chain that takes secured connections.
	Downstream func(Downstream) *corev3.TransportSocket
	// Upstream returns the transport socket for secured connections to a service.
	Upstream func(Upstream) *corev3.TransportSocket
}

// Mode is how a port takes connections.
type Mode int

// Modes.
const (
	Permissive Mode = iota // secured and plaintext
	Strict                 // secured only
	Disable                // plaintext only
)

// Downstream is what the transport socket of an inbound chain depends on.
type Downstream struct {
	Mesh         *mesh.Config
	HTTP         bool // the chain carries HTTP
	PeerExchange bool // the proxy exchanges metadata on TCP connections
}

// Upstream is what the transport socket of a cluster depends on.
type Upstream struct {
	SNI          string
	Identities   []string // the SPIFFE IDs that the peer may have; empty: every identity of the mesh
	HTTP2        bool
	PeerExchange bool // the proxy exchanges metadata on TCP connections
}
