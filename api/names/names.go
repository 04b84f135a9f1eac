package names

import (
	"strconv"
	"strings"
)

// Clusters of a bootstrap. XDSCluster is the control plane, and SDSCluster the SDS server of the agent, which has the
// proxy's certificates.
const (
	XDSCluster = "xds-grpc"
	SDSCluster = "sds-grpc"
	// SelfCluster has the endpoints of the proxy's own workload. Envoy compares their zones with the zones of other
	// clusters to balance by zone.
	SelfCluster = "local_cluster"
)

// Clusters that stand for no service.
const (
	BlackHoleCluster          = "BlackHoleCluster"
	PassthroughCluster        = "PassthroughCluster"
	InboundPassthroughCluster = "InboundPassthroughCluster"
	AllowAnyDynamicDNSCluster = "AllowAnyDynamicDNSCluster"
	// UnknownService is the cluster name in routes whose destination does not exist. No cluster has this name.
	UnknownService = "UnknownService"
)

// Listeners and filter chains that stand for no service.
const (
	VirtualOutbound            = "virtualOutbound"
	VirtualOutboundBlackhole   = "virtualOutbound-blackhole"
	VirtualOutboundCatchall    = "virtualOutbound-catchall-tcp"
	VirtualInbound             = "virtualInbound" // also the name of its TCP catch-all chains
	VirtualInboundBlackhole    = "virtualInbound-blackhole"
	VirtualInboundCatchallHTTP = "virtualInbound-catchall-http"
	PassthroughFilterChain     = "PassthroughFilterChain"
)

// Routes and virtual hosts that stand for no service.
const (
	HTTPProxyRoute = "http_proxy" // the route configuration of the explicit HTTP proxy port
	DefaultRoute   = "default"
	AllowAny       = "allow_any"
	// AllowAnyDynamicDNS is AllowAny for ports on which proxies resolve the hosts of requests.
	AllowAnyDynamicDNS = "allow_any_dynamic_dns"
	BlockAll           = "block_all"
)

// Direction of a cluster, as in its name.
type Direction string

// Directions.
const (
	Outbound Direction = "outbound"
	Inbound  Direction = "inbound"
)

// ClusterName is the parsed name of a service's cluster.
type ClusterName struct {
	Direction Direction
	Port      uint32
	Subset    string
	Host      string
	SNIDNAT   bool // the form that is also a TLS server name, for gateways that route by SNI
}

// NoService is the host of a destination that does not exist, and the name of its cluster. No proxy has that cluster.
const NoService = "UnknownService"

// Cluster returns the name of a cluster, such as outbound|80|v1|web.a.svc.cluster.local or inbound|8080||.
func Cluster(d Direction, port uint32, subset, host string) string {
	if host == NoService {
		return host
	}
	return string(d) + "|" + number(port) + "|" + subset + "|" + host
}

// SNICluster returns the name of an SNI-DNAT cluster, which is also the server name that sidecars send:
// outbound_.80_.v1_.web.a.svc.cluster.local.
func SNICluster(port uint32, subset, host string) string {
	return string(Outbound) + "_." + number(port) + "_." + subset + "_." + host
}

func (c ClusterName) String() string {
	if c.SNIDNAT {
		return SNICluster(c.Port, c.Subset, c.Host)
	}
	return Cluster(c.Direction, c.Port, c.Subset, c.Host)
}

// ParseCluster parses a cluster's name. It reports false if the name is not a service's cluster.
func ParseCluster(name string) (ClusterName, bool) {
	sep, c := "|", ClusterName{}
	if strings.HasPrefix(name, string(Outbound)+"_.") {
		sep, c.SNIDNAT = "_.", true
	}
	part := strings.SplitN(name, sep, 4)
	if len(part) != 4 {
		return ClusterName{}, false
	}
	port, ok := parseNumber(part[1])
	if c.Direction = Direction(part[0]); !ok || c.Direction != Outbound && c.Direction != Inbound || strings.Contains(part[3], "|") {
		return ClusterName{}, false
	}
	c.Port, c.Subset, c.Host = port, part[2], part[3]
	return c, true
}

// ClusterHost returns the host in a cluster's name, or the name itself if it is not a service's cluster.
func ClusterHost(name string) string {
	if strings.HasPrefix(name, string(Outbound)+"_.") {
		part := strings.SplitN(name, "_.", 4) // the host may contain the separator
		return part[len(part)-1]
	}
	return name[strings.LastIndexByte(name, '|')+1:]
}

// CompareByHost orders the names of clusters by host, and those with one host by name.
func CompareByHost(a, b string) int {
	if c := strings.Compare(ClusterHost(a), ClusterHost(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

// Listener returns the name of a listener, or of an inbound chain, for its address: 0.0.0.0_80, or
// unix:///run/x.sock_0.
func Listener(bind string, port uint32) string {
	return bind + "_" + number(port)
}

// QUICListener returns the name of the listener that takes QUIC at an address.
func QUICListener(bind string, port uint32) string { return "udp_" + Listener(bind, port) }

// RouteName is the parsed name of a route configuration.
type RouteName struct {
	Scheme string // "http" or "https" for a gateway's routes, else empty
	Port   uint32
	Host   string // host of a sniffed service, else empty
}

// Route names the routes of all HTTP services on a port: 80.
func Route(port uint32) string { return number(port) }

// SniffedRoute names the routes of one service whose protocol is sniffed: host:port.
func SniffedRoute(host string, port uint32) string { return host + ":" + number(port) }

// UnixRoute names the routes of a Sidecar's egress listener on a unix socket, as the Sidecar has it:
// unix:///run/x.sock.
func UnixRoute(bind string) string { return bind }

// GatewayRoute names the routes of a gateway's HTTP servers on one port, the one that is bound: http.8080. bind is
// empty for the wildcard.
func GatewayRoute(targetPort uint32, bind string) string {
	if bind == "" {
		return "http." + number(targetPort)
	}
	return "http." + number(targetPort) + "." + bind
}

// SecureGatewayRoute names the routes of one server of a Gateway that terminates TLS, by the server's port and the name
// of that port: https.443.web.gateway.istio-system. bind is empty for the wildcard.
func SecureGatewayRoute(port uint32, portName, gateway, namespace, bind string) string {
	name := "https." + number(port) + "." + portName + "." + gateway + "." + namespace
	if bind != "" {
		name += "." + bind
	}
	return name
}

// ParseRoute parses the name of a route configuration. It reports false if the name has no port.
func ParseRoute(name string) (RouteName, bool) {
	if port, ok := parseNumber(name); ok {
		return RouteName{Port: port}, true
	}
	for _, scheme := range []string{"http", "https"} {
		if rest, ok := strings.CutPrefix(name, scheme+"."); ok {
			p, _, _ := strings.Cut(rest, ".")
			if port, ok := parseNumber(p); ok {
				return RouteName{Scheme: scheme, Port: port}, true
			}
		}
	}
	if i := strings.LastIndexByte(name, ':'); i > 0 {
		if port, ok := parseNumber(name[i+1:]); ok {
			return RouteName{Host: name[:i], Port: port}, true
		}
	}
	return RouteName{}, false
}

// VirtualHost names a virtual host: host:port.
func VirtualHost(host string, port uint32) string { return Domain(host) + ":" + number(port) }

// InboundVirtualHost names the one virtual host of an inbound chain; port is the service's, 0 for the catch-all.
func InboundVirtualHost(port uint32) string { return string(Inbound) + "|http|" + number(port) }

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// parseNumber parses exactly the output of number, within the range of a port.
func parseNumber(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || number(uint32(n)) != s {
		return 0, false
	}
	return uint32(n), true
}
