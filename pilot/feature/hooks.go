package feature

import (
	"net/netip"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Hooks are what a feature adds to resources. A nil hook adds nothing.
type Hooks struct {
	// HTTPFilters returns HTTP filters of a connection manager. The router follows those of all features.
	HTTPFilters func(Chain) []*hcmv3.HttpFilter
	// NetworkFilters returns network filters of a chain. The connection manager or the TCP proxy follows those of all
	// features.
	NetworkFilters func(Chain) []*listenerv3.Filter
	// FiltersReadOf returns a chain with no more than HTTPFilters and NetworkFilters depend on. Chains for which it
	// returns the same have the same filters, which are made once. Nil: they are made for each chain.
	FiltersReadOf func(Chain) Chain
	// Cluster changes a cluster, except for those that never have a connection.
	Cluster func(Cluster, *clusterv3.Cluster)

	Listeners   Listeners
	Transport   Transport
	Destination Destination
	Routes      Routes
	Patches     Patches
	Extensions  Extensions
}

// Direction is the direction of the traffic of a listener or a cluster.
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

// Tags are the literals in the traces of a workload. Service is what its proxy calls itself. Tracing is the
// tracing of the proxy's own configuration, as mesh.Config.Tracing takes it.
type Tags struct {
	CanonicalService, CanonicalRevision, Cluster, Mesh, Namespace, Service, Tracing string
}

// Chain is the filter chain that a hook adds to.
type Chain struct {
	Proxy
	Direction  Direction
	HTTP       bool              // the chain has a connection manager, not a TCP proxy
	Protocol   registry.Protocol // of the port; Unsupported where it is detected
	StatPrefix string            // of a TCP proxy: its name in statistics, which is never empty
	Refused    bool              // it takes what is called at the proxy's own port, and refuses it
	Unknown    bool              // it takes what is called at no service, and passes it through or refuses it
	Mutual     bool              // of a gateway's TCP proxy: connections come over the mesh's own TLS
	// Port is the port that is called: of a Gateway the listener's, Outbound the service's. Inbound it is the workload's
	// in a chain with HTTP, and the service's in one without, as istiod has it. It is 0 where the chain has no port.
	Port      uint32
	Selection Selection // the feature's own, of the part that the listener belongs to
}

// Listener is the listener that a hook changes.
type Listener struct {
	Proxy
	Direction Direction
	Selection Selection // as of a Chain
}

// Cluster is the cluster that a hook changes. Its Direction is Inbound if it leads to the workload itself.
type Cluster struct {
	Mesh         *mesh.Config
	Capabilities node.Capabilities
	Direction    Direction
	HTTP2        bool      // requests go out as HTTP/2
	Downstream   bool      // requests go out in the version of HTTP that they came in
	Selection    Selection // the feature's own: of InboundPart if the Direction is Inbound, else of ClientPart
}

// Listeners changes listeners and the last filters of their chains.
type Listeners interface {
	// ConnectionManager changes a connection manager. It has the filters of all features; the router is the last.
	ConnectionManager(Chain, *hcmv3.HttpConnectionManager)
	// TCPProxy changes a TCP proxy, the last filter of a chain without HTTP.
	TCPProxy(Chain, *tcpv3.TcpProxy)
	// Listener changes a listener. Its filter chains are complete.
	Listener(Listener, *listenerv3.Listener)
}

// Transport secures the connections between the proxies of the mesh. At most one feature has it. Its Selection is made
// for endpoints too: how an endpoint is called follows from the objects that apply to its workload.
type Transport interface {
	// Mode returns how a workload takes connections on a port. Port 0 stands for all ports without a mode of their own.
	Mode(s Selection, port uint32) Mode
	// Ports returns the ports that have a mode of their own, ascending.
	Ports(s Selection) []uint32
	// Downstream returns the transport socket of a chain that takes secured connections.
	Downstream(Downstream) *corev3.TransportSocket
	// Upstream returns the transport socket for secured connections to a service.
	Upstream(Upstream) *corev3.TransportSocket
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
	HTTP         bool       // the chain carries HTTP
	PeerExchange bool       // the proxy exchanges metadata on TCP connections
	Files        node.Files // certificates and roots of the proxy's own; empty paths: of the mesh
}

// Upstream is what the transport socket of a cluster depends on.
type Upstream struct {
	SNI          string
	Identities   []string // the SPIFFE IDs that the peer may have; empty: every identity of the mesh
	HTTP2        bool
	PeerExchange bool // the proxy exchanges metadata on TCP connections
}

// Destination applies the traffic policies that are in force for a service. At most one feature has it.
type Destination interface {
	// Choice returns how a cluster chooses among the endpoints of a service.
	Choice(*mesh.Config, *registry.Service, traffic.Policy) Choice
	// Policy applies load balancing, connection pool and outlier detection to a cluster and its HTTP options.
	Policy(traffic.Policy, PolicyTarget, *clusterv3.Cluster, *httpv3.HttpProtocolOptions)
	// Connection applies what a policy says of connections that are forwarded as bytes to their TCP proxy.
	Connection(traffic.Connection, *tcpv3.TcpProxy)
	// ProxyProtocol returns a transport socket around another, with which connections begin with a PROXY header.
	ProxyProtocol(*networkingv1alpha3.TrafficPolicy_ProxyProtocol, *corev3.TransportSocket) *corev3.TransportSocket
	// TLS secures the connections of a cluster.
	TLS(*networkingv1alpha3.ClientTLSSettings, PolicyTLS, *clusterv3.Cluster, *httpv3.HttpProtocolOptions)
	// Hash returns the consistent hash by which requests to a port are spread over the endpoints.
	Hash(r traffic.Rule, port uint32) []*routev3.RouteAction_HashPolicy
}

// Choice is how a cluster chooses among the endpoints of a service. With the zero Choice all endpoints are equal, and
// called as their workloads take connections. At most one of Locality, Zones and Distribution is set.
type Choice struct {
	Locality     *networkingv1alpha3.LocalityLoadBalancerSetting
	Zones        *networkingv1alpha3.ZoneAwareLoadBalancerSetting
	Distribution string // the service's traffic distribution
	FailsOver    bool   // by Locality, far endpoints replace near ones that fail
	ReadyOnly    bool   // unhealthy endpoints are left out
	TLS          EndpointTLS
}

// EndpointTLS is how the endpoints of a cluster are called.
type EndpointTLS uint8

// Ways to call endpoints.
const (
	TLSByWorkload EndpointTLS = iota // as each workload takes connections
	TLSOfMesh                        // over the mesh's own mutual TLS, where a workload takes it
	TLSOfPolicy                      // as a policy says, without the mesh's own mutual TLS
)

// RoutesByZone reports whether clients prefer their own zone as far as its share of the endpoints allows.
func (c Choice) RoutesByZone() bool {
	return c.Zones != nil && (c.Zones.Enabled == nil || c.Zones.Enabled.Value)
}

// PolicyTarget is the cluster that a policy is applied to.
type PolicyTarget struct {
	Sniffed bool   // Envoy detects the port's protocol
	Inbound bool   // it leads to the workload itself: the connection pool alone applies
	Choice  Choice // among the endpoints of the cluster
}

// PolicyTLS is what TLS settings are completed with.
type PolicyTLS struct {
	Mesh        *mesh.Config
	Credentials bool                    // the proxy reads credentialName
	Mutual      *corev3.TransportSocket // for mutual TLS within the mesh, with the settings' own SNI and names
	HTTP2       bool
	InMesh      bool     // the peer knows the protocols that the mesh announces
	Certificate string   // the credential that clients show where the settings name none; empty: none
	Identities  []string // the names one of which a certificate must have if the settings name none; empty: any
}

// Extensions makes the configurations of filters that listeners name and do not hold: proxies subscribe to them by the
// names of the filters. A name is of one object, in all Selections.
type Extensions interface {
	// Object returns the object of a Selection of ListenersPart that has the filter of a name, or nil if there is none.
	Object(name string, s Selection) *kinds.Object
	// Config returns the configuration of the filter of an object.
	Config(*kinds.Object) *corev3.TypedExtensionConfig
}

// Patches changes resources that all features have made, and adds some. At most one feature has it, and its Part is
// PatchPart: what it does not patch is shared with all other proxies. Its functions are pure.
type Patches interface {
	// Of returns a function that returns the patches which may apply to a resource, in the order in which they apply.
	// They are of a Selection, and the resource is of the type and direction of a target.
	Of(Selection, PatchTarget) func(PatchTarget) []Patch
	// Added returns the patches that add a resource of the type and direction of a target, which has no name.
	// The target of virtual hosts is named as their route configuration.
	Added(Selection, PatchTarget) []Patch
	// Apply returns a message with patches applied, one after the other: nil if one removes it. It does not change its
	// argument. Where that is nil there is one patch, and Apply returns the message that the patch adds. A patch that
	// cannot be applied, or makes the message one that Envoy would refuse, is left out. The notes say which patches
	// were applied, and why others are left out.
	Apply([]Patch, PatchTarget, proto.Message) (proto.Message, []PatchNote)
	// Findings returns what users should know of the patches of some Selections. notes are those of all resources that
	// were made with them.
	Findings(of []PatchUse, notes []PatchNote) []diag.Diagnostic
}

// Patch is one change that an object makes. It is comparable.
type Patch struct {
	Object *kinds.Object
	Index  int
}

// PatchNoMatch is the code of findings about patches that have found nothing to apply to.
const PatchNoMatch = "PatchNoMatch"

// PatchNote says what became of a patch in one resource.
type PatchNote struct {
	Patch
	Resource string // its name
	Reason   string // why the patch is left out; empty: it was applied
}

// PatchUse says for what a Selection of patches was used.
type PatchUse struct {
	Selection Selection
	Gateway   bool            // for gateways; else for sidecars
	Types     map[string]bool // the types of the resources that were made, by URL
}

// PatchTarget is a resource that may be patched.
type PatchTarget struct {
	Type      string // URL; of virtual hosts too, which are patched by themselves
	Direction Direction
	Name      string // of a virtual host: of its route configuration, and for Apply also its own: <route>/<host>
	Host      string // the name of a virtual host; not for Apply
	// Servers returns the servers of a gateway that have a route configuration. It returns nil if there are none.
	Servers func(route string) []GatewayServer
}

// GatewayServer is a server of a Gateway.
type GatewayServer struct {
	Gateway  string // namespace/name
	Port     uint32
	PortName string
}

// Routes makes the routes of objects that are bound to hosts. At most one feature has it.
type Routes interface {
	// HTTP returns the routes of an object. Without any the default route of the host applies.
	HTTP(RouteOptions) []*routev3.Route
	// Any reports whether HTTP returns any route.
	Any(RouteOptions) bool
	// Join returns one list for the routes of several objects, by precedence.
	Join(lists ...[]*routev3.Route) []*routev3.Route
	// TLS returns the routes of an object for TLS connections that are not terminated, TCP those for other connections.
	// They read the same options as Any. At most the last route for other connections is for any address.
	TLS(RouteOptions) []ConnectionRoute
	TCP(RouteOptions) []ConnectionRoute
}

// ConnectionRoute is where connections lead to that carry no HTTP, or are not terminated.
type ConnectionRoute struct {
	Servers      []string       // TLS server names, sorted; empty: any
	Subnets      []netip.Prefix // of the addresses that are called; empty: those of the service. Gateways get none
	Destinations []ConnectionDestination
}

// ConnectionDestination is a service that connections lead to. Port is 0 where the route has none. A lone destination
// needs no weight.
type ConnectionDestination struct {
	Host, Subset string
	Port, Weight uint32
}

// RouteOptions is what the routes of an object for one virtual host depend on. Functions must be pure. Any does not
// read Destinations.
type RouteOptions struct {
	Object       *kinds.Object
	Port         uint32            // of the listener; of a gateway, the server's port
	Gateway      string            // "namespace/name" of the Gateway, or "mesh" for sidecars
	Namespace    string            // the proxy's
	Domain       string            // the cluster's, for hosts without a dot: cluster.local
	Capabilities node.Capabilities // RecentCommands alone

	// SourceMatches reports whether the proxy has the source labels of a match of any kind of route. Nil: every match
	// passes.
	SourceMatches func(match any) bool
	Destinations  Destinations
	// Retries is the mesh's default retry policy. Nil: the default of Retries applies.
	Retries *networkingv1alpha3.HTTPRetry
}

// Destinations are the services that HTTP routes lead to.
type Destinations interface {
	// Cluster returns the cluster name of a destination. host is fully qualified; port is 0 if the destination has none.
	// For a destination that does not exist, Cluster returns names.UnknownService.
	Cluster(host, subset string, port uint32) string
	// Hash returns the hash policies of a destination.
	Hash(names.ClusterName) []*routev3.RouteAction_HashPolicy
}
