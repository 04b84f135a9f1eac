package feature

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Hooks are what a feature adds to resources. A nil hook adds nothing.
type Hooks struct {
	// HTTPFilters returns HTTP filters of a connection manager. The router follows those of all features.
	HTTPFilters func(Chain) []*hcmv3.HttpFilter
	// NetworkFilters returns network filters of a chain. The connection manager or the TCP proxy follows those of all
	// features.
	NetworkFilters func(Chain) []*listenerv3.Filter
	// ConnectionManager changes a connection manager.
	ConnectionManager func(Chain, *hcmv3.HttpConnectionManager)
	// Cluster changes a cluster for outgoing traffic.
	Cluster func(Cluster, *clusterv3.Cluster)

	Transport *Transport
}

// Direction is the direction of the traffic of a listener.
type Direction int

// Directions.
const (
	Outbound Direction = iota // a workload's own calls
	Inbound                   // calls to the workload
	Gateway                   // calls to a gateway that ends their connections
)

// Proxy is what hooks may know of a proxy.
type Proxy struct {
	Mesh         *mesh.Config
	Capabilities node.Capabilities
	Tags         Tags
}

// Tags are the literals in the traces of a workload. Sampling is the proxy's own percentage, or empty for the mesh's.
type Tags struct {
	CanonicalService, CanonicalRevision, Cluster, Mesh, Namespace, Sampling string
}

// Chain is the filter chain that a hook adds to.
type Chain struct {
	Proxy
	Direction Direction
	HTTP      bool              // the chain has a connection manager, not a TCP proxy
	Protocol  registry.Protocol // of the port; Unsupported where it is detected
	Cluster   string            // of a TCP proxy: the cluster that it forwards to
	Selection Selection         // the feature's own, of the half that the listener belongs to
}

// Cluster is the cluster that a hook changes.
type Cluster struct {
	Mesh         *mesh.Config
	Capabilities node.Capabilities
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
