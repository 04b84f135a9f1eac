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

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Hooks are the functions by which a feature adds to resources. A nil hook adds nothing.
type Hooks struct {
	// HTTPFilters returns HTTP filters of a connection manager. The router follows the filters of all features.
	HTTPFilters func(Chain) []*hcmv3.HttpFilter
	// NetworkFilters returns network filters of a chain. The connection manager or the TCP proxy follows the filters of
	// all features.
	NetworkFilters func(Chain) []*listenerv3.Filter
	// FiltersReadOf is optional. It returns a chain with only the fields that HTTPFilters and NetworkFilters depend on.
	// Chains for which it returns the same share their filters, which are made once. Without it, filters are made for
	// each chain.
	FiltersReadOf func(Chain) Chain
	// Cluster changes a cluster. It is not called for a cluster that never has a connection.
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
	Outbound Direction = iota // calls by the workload
	Inbound                   // calls to the workload
	Gateway                   // calls to a gateway that terminates their connections
)

// Proxy is the part of a proxy that hooks may depend on.
type Proxy struct {
	Mesh         *mesh.Config
	Capabilities node.Capabilities
	Tags         Tags
}

// Tags are the literals in the traces of a workload. Service is the name of its service. Tracing is the tracing of the
// proxy's own configuration, as mesh.Config.Tracing takes it.
type Tags struct {
	CanonicalService, CanonicalRevision, Cluster, Mesh, Namespace, Service, Tracing string
}

// Chain is the filter chain that a hook adds to.
type Chain struct {
	Proxy
	Direction  Direction
	HTTP       bool               // whether the chain has a connection manager, not a TCP proxy
	Protocol   protocols.Protocol // protocol of the port; Unsupported if it is detected
	StatPrefix string             // name of a TCP proxy in statistics; never empty
	Refused    bool               // whether it takes connections to the proxy's own port, and refuses them
	Unknown    bool               // whether it takes connections to no service, and passes them through or refuses them
	Mutual     bool               // whether connections of a gateway's TCP proxy use the mesh's own TLS
	// Port is the called port: the listener's for a Gateway, the service's if the Direction is Outbound. Inbound it is
	// the workload's in a chain with HTTP, and the service's in a chain without, as in istiod. It is 0 if the chain has
	// no port.
	Port      uint32
	Selection Selection // the feature's own, for the part to which the listener belongs
}

// Listener is the listener that a hook changes.
type Listener struct {
	Proxy
	Direction Direction
	Selection Selection // as in a Chain
}

// Cluster is the cluster that a hook changes. Its Direction is Inbound if it leads to the workload itself.
type Cluster struct {
	Mesh         *mesh.Config
	Capabilities node.Capabilities
	Direction    Direction
	HTTP2        bool      // whether requests use HTTP/2
	Downstream   bool      // whether requests use the HTTP version in which they were received
	Selection    Selection // the feature's own: for InboundPart if the Direction is Inbound, else for ClientPart
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
	// Mode returns which connections a workload accepts on a port. Port 0 means all ports without a mode of their own.
	Mode(s Selection, port uint32) Mode
	// Ports returns the ports that have a mode of their own, ascending.
	Ports(s Selection) []uint32
	// Downstream returns the transport socket of a chain that accepts secured connections.
	Downstream(Downstream) *corev3.TransportSocket
	// Upstream returns the transport socket for secured connections to a service.
	Upstream(Upstream) *corev3.TransportSocket
}

// Mode says which connections a port accepts.
type Mode int

// Modes.
const (
	Permissive Mode = iota // secured and plaintext
	Strict                 // secured only
	Disable                // plaintext only
)

// Downstream is the input of the transport socket of an inbound chain.
type Downstream struct {
	Mesh         *mesh.Config
	HTTP         bool       // whether the chain carries HTTP
	PeerExchange bool       // whether the proxy exchanges metadata on TCP connections
	Files        node.Files // certificates and roots of the proxy's own; empty paths mean the mesh's
}

// Upstream is the input of the transport socket of a cluster.
type Upstream struct {
	SNI          string
	Identities   []string // SPIFFE IDs that the peer may have; empty for every identity of the mesh
	HTTP2        bool
	PeerExchange bool // whether the proxy exchanges metadata on TCP connections
	Compliance   compliance.Policy
}

// Destination applies the traffic policies that are in force for a service. At most one feature has it.
type Destination interface {
	// Choice returns how a cluster chooses among the endpoints of a service.
	Choice(*mesh.Config, *registry.Service, traffic.Policy) Choice
	// Policy applies load balancing, connection pool and outlier detection to a cluster and its HTTP options.
	Policy(traffic.Policy, PolicyTarget, *clusterv3.Cluster, *httpv3.HttpProtocolOptions)
	// Connection applies the part of a policy for forwarded connections to their TCP proxy.
	Connection(traffic.Connection, *tcpv3.TcpProxy)
	// ProxyProtocol returns a transport socket around another that begins connections with a PROXY header.
	ProxyProtocol(*networkingv1alpha3.TrafficPolicy_ProxyProtocol, *corev3.TransportSocket) *corev3.TransportSocket
	// TLS secures the connections of a cluster.
	TLS(*networkingv1alpha3.ClientTLSSettings, PolicyTLS, *clusterv3.Cluster, *httpv3.HttpProtocolOptions)
	// Hash returns the consistent hash by which requests to a port are balanced over the endpoints.
	Hash(r traffic.Rule, port uint32) []*routev3.RouteAction_HashPolicy
}

// Choice is how a cluster chooses among the endpoints of a service. With the zero Choice all endpoints are equal, and
// the TLS mode depends on their workloads. At most one of Locality, Zones and Distribution is set.
type Choice struct {
	Locality     *networkingv1alpha3.LocalityLoadBalancerSetting
	Zones        *networkingv1alpha3.ZoneAwareLoadBalancerSetting
	Distribution string // traffic distribution of the service
	FailsOver    bool   // whether, by Locality, distant endpoints replace failing near ones
	ReadyOnly    bool   // whether unhealthy endpoints are left out
	TLS          EndpointTLS
}

// EndpointTLS says how the TLS mode of a cluster's endpoints is determined.
type EndpointTLS uint8

// Values of EndpointTLS.
const (
	TLSByWorkload EndpointTLS = iota // by the workload of each endpoint
	TLSOfMesh                        // the mesh's own mutual TLS, if the workload accepts it
	TLSOfPolicy                      // by a policy, without the mesh's own mutual TLS
)

// RoutesByZone reports whether clients prefer their own zone as far as its share of the endpoints allows.
func (c Choice) RoutesByZone() bool {
	return c.Zones != nil && (c.Zones.Enabled == nil || c.Zones.Enabled.Value)
}

// PolicyTarget is the cluster that a policy is applied to.
type PolicyTarget struct {
	Sniffed bool   // whether Envoy detects the port's protocol
	Inbound bool   // whether it leads to the workload itself: then only the connection pool applies
	Choice  Choice // choice among the endpoints of the cluster
}

// PolicyTLS completes the TLS settings of a policy.
type PolicyTLS struct {
	Mesh        *mesh.Config
	Credentials bool                    // whether the proxy may read credentialName and caCertCredentialName
	Mutual      *corev3.TransportSocket // for mutual TLS within the mesh, with the settings' own SNI and names
	HTTP2       bool
	InMesh      bool     // whether the peer knows the protocols that the mesh announces
	Certificate string   // credential that clients present if the settings name none; empty for none
	Identities  []string // names of which a certificate must have one if the settings name none; empty for any
}

// Extensions makes the configurations of filters that listeners only name: proxies subscribe to them by the names of
// the filters. A name belongs to one object, in all Selections.
type Extensions interface {
	// Object returns the object in a Selection of ListenersPart that has the filter of a name, or nil if there is none.
	Object(name string, s Selection) *kinds.Object
	// Config returns the configuration of the filter of an object.
	Config(*kinds.Object) *corev3.TypedExtensionConfig
}

// Patches changes resources that all features have made, and adds some. At most one feature has it, and its Part is
// PatchPart: unpatched resources are shared with all other proxies. Its functions are pure.
type Patches interface {
	// Of returns a function that returns the patches in a Selection which may apply to a resource of the type and
	// direction of a target, in the order in which they apply.
	Of(Selection, PatchTarget) func(PatchTarget) []Patch
	// Added returns the patches that add a resource of the type and direction of a target, which has no name. The
	// target for virtual hosts has the name of their route configuration.
	Added(Selection, PatchTarget) []Patch
	// Apply returns a message with patches applied, one after the other, or nil if one removes it. It does not change
	// its argument. If that is nil there is one patch, and Apply returns the message that the patch adds. A patch that
	// cannot be applied, or after which Envoy would reject the message, is left out. The notes say which patches were
	// applied, and why others are left out.
	Apply([]Patch, PatchTarget, proto.Message) (proto.Message, []PatchNote)
	// Findings returns findings about the patches of some Selections. notes are the notes of all resources made with
	// them.
	Findings(of []PatchUse, notes []PatchNote) []diag.Diagnostic
}

// Patch is one change that an object makes. It is comparable.
type Patch struct {
	Object *kinds.Object
	Index  int
}

// PatchNoMatch is the code of findings about patches without a matching resource.
const PatchNoMatch = "PatchNoMatch"

// PatchNote is the result of a patch in one resource.
type PatchNote struct {
	Patch
	Resource string // name of the resource
	Reason   string // why the patch is left out; empty if it was applied
}

// PatchUse describes the resources for which a Selection of patches was used.
type PatchUse struct {
	Selection Selection
	Gateway   bool            // whether for gateways, else for sidecars
	Types     map[string]bool // types of the resources that were made, by URL
}

// PatchTarget is a resource that may be patched.
type PatchTarget struct {
	Type      string // URL; also for virtual hosts, which are patched separately
	Direction Direction
	Name      string // for a virtual host: name of its route configuration, and in Apply its own, <route>/<host>
	Host      string // name of a virtual host; not set in Apply
	// Servers returns the servers of a gateway that have a route configuration, or nil if there are none.
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
	// HTTP returns the routes of an object. If there are none, the default route of the host applies.
	HTTP(RouteOptions) []*routev3.Route
	// Any reports whether HTTP returns any route.
	Any(RouteOptions) bool
	// Join returns one list with the routes of several objects, by precedence.
	Join(lists ...[]*routev3.Route) []*routev3.Route
	// TLS returns the routes of an object for unterminated TLS connections, TCP its routes for other connections. They
	// read the same options as Any. Only the last route for other connections may be for any address.
	TLS(RouteOptions) []ConnectionRoute
	TCP(RouteOptions) []ConnectionRoute
}

// ConnectionRoute is the destination of connections that carry no HTTP, or are not terminated.
type ConnectionRoute struct {
	Servers      []string       // TLS server names, sorted; empty for any
	Subnets      []netip.Prefix // ranges of called addresses; empty for the service's. Gateways ignore them
	Destinations []ConnectionDestination
}

// ConnectionDestination is a service as the destination of connections. Port is 0 if the route has none. A single
// destination needs no weight.
type ConnectionDestination struct {
	Host, Subset string
	Port, Weight uint32
}

// RouteOptions is what the routes of an object for one virtual host depend on. Functions must be pure. Any does not
// read Destinations.
type RouteOptions struct {
	Object       *kinds.Object
	Port         uint32            // port of the listener; for a gateway, the server's
	Gateway      string            // "namespace/name" of the Gateway, or "mesh" for sidecars
	Namespace    string            // namespace of the proxy
	Domain       string            // domain of the cluster, for hosts without a dot: cluster.local
	Capabilities node.Capabilities // only RecentCommands is set

	// SourceMatches is optional. It reports whether the proxy has the source labels of a match of any kind of route.
	// Without it every match passes.
	SourceMatches func(match any) bool
	Destinations  Destinations
	// Retries is the mesh's default retry policy. Nil: the default of Retries applies.
	Retries *networkingv1alpha3.HTTPRetry
	// Made is optional. HTTP adds the rule of each route that it makes.
	Made map[*routev3.Route]Rule
}

// Rule is the place of a rule in an object, and the place of the match from which a route is made. Match is -1 if the
// rule has none.
type Rule struct {
	Object      kinds.Key
	Rule, Match int
}

// Destinations are the services that HTTP routes lead to.
type Destinations interface {
	// Cluster returns the cluster name of a destination. host is fully qualified; port is 0 if the destination has none.
	// For a destination that does not exist, Cluster returns names.UnknownService.
	Cluster(host, subset string, port uint32) string
	// Hash returns the hash policies of a destination.
	Hash(names.ClusterName) []*routev3.RouteAction_HashPolicy
}
