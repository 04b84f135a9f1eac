package gateway

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/http3"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/servers"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Server is one server of one Gateway on one port of the workload.
type Server struct {
	*networkingv1alpha3.Server
	Gateway *kinds.Object
	Bind    string   // bound address in canonical form; empty for the wildcard of the proxy's family
	Target  uint32   // bound port
	HTTP3   []uint32 // UDP ports bound for HTTP/3
	Hosts   []string // normalised: "host" for all namespaces, else "namespace/host"
}

// table is the servers of a gateway.
type table struct {
	all     []Server
	byRoute map[string][]Server
}

// Tables caches a table for each set of Gateways and ports, because every route configuration needs its servers. Safe
// for concurrent use.
type Tables struct {
	mu   sync.Mutex
	made map[tableKey]*table
}

type tableKey struct {
	gateways frozen.List[*kinds.Object]
	targets  frozen.List[cohort.Target]
	http3    frozen.List[uint32]
}

// Servers returns the servers of a gateway. The caller must not change the slice.
func (s *Tables) Servers(c cohort.Client) []Server { return s.of(c).all }

// ServersOf returns the servers that share a route configuration.
func (s *Tables) ServersOf(c cohort.Client, route string) []Server { return s.of(c).byRoute[route] }

func (s *Tables) of(c cohort.Client) *table {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := tableKey{c.Gateways, c.Targets, c.HTTP3}
	if s.made[k] == nil {
		if s.made == nil {
			s.made = map[tableKey]*table{}
		}
		t := &table{all: serversOf(c), byRoute: map[string][]Server{}}
		for _, s := range t.all {
			route, use := s.Route(), s.Use()
			// on another port of the workload
			again := use == servers.SecureHTTP && slices.ContainsFunc(t.byRoute[route], func(o Server) bool { return o.Server == s.Server })
			if use.HTTP() && !again {
				t.byRoute[route] = append(t.byRoute[route], s)
			}
		}
		s.made[k] = t
	}
	return s.made[k]
}

// serversOf lists the servers of a gateway by the precedence of their Gateways. Servers with one bind key share its
// listener and its routes. If two servers with TLS settings have the same host at one bind key, the second is left out.
func serversOf(c cohort.Client) []Server {
	var all []Server
	type boundHost struct {
		bind string
		port uint32
		host string
	}
	var seen map[boundHost]struct{}
	byPort, byUDPPort := targetsByPort(c)
	http3Ports := slices.Collect(c.HTTP3.All)
	for o := range c.Gateways.All {
		for _, s := range o.Spec.(*networkingv1.Gateway).Servers {
			hosts, bind := serverHosts(s, o.Namespace), canonical(s.Bind)
			port := s.GetPort().GetNumber()
			targets := byPort[port]
			if targets == nil {
				targets = byUDPPort[port]
			}
			if targets == nil {
				targets = []uint32{port} // a port without a service is bound itself
			}
			var quic []uint32
			if len(http3Ports) > 0 && http3.Takes(s) {
				for _, target := range byUDPPort[port] {
					if slices.Contains(http3Ports, target) {
						quic = append(quic, target)
					}
				}
			}
			for _, target := range targets {
				if s.Tls != nil {
					if slices.ContainsFunc(hosts, func(h string) bool { _, ok := seen[boundHost{bind, target, h}]; return ok }) {
						continue
					}
					if seen == nil {
						seen = map[boundHost]struct{}{}
					}
					for _, h := range hosts {
						seen[boundHost{bind, target, h}] = struct{}{}
					}
				}
				all = append(all, Server{s, o, bind, target, quic, hosts})
			}
		}
	}
	withoutExposed(all)
	return all
}

// withoutExposed disables HTTP/3 on servers by which clients would reach a host of another server without the
// certificate that it requires. The other server is on the same port, or on another one that the workload serves under
// the same service port.
func withoutExposed(all []Server) {
	byPort, byTarget := http3.Strict{}, http3.Strict{}
	for _, s := range all {
		byPort.Add(s.GetPort().GetNumber(), s.Server)
		byTarget.Add(s.Target, s.Server)
	}
	for i := range all {
		if s := &all[i]; len(s.HTTP3) > 0 && (byPort.Exposed(s.GetPort().GetNumber(), s.Server) != "" ||
			byTarget.Exposed(s.Target, s.Server) != "") {
			s.HTTP3 = nil
		}
	}
}

// serverHosts returns the hosts of a server of a Gateway in a namespace. A server for any host of any namespace has
// only that one.
func serverHosts(s *networkingv1alpha3.Server, namespace string) []string {
	list := make([]string, 0, len(s.Hosts))
	for _, h := range s.Hosts {
		h = strings.ToLower(h)
		switch ns, host, ok := strings.Cut(h, "/"); {
		case ok && ns == "*" && host == "*":
			return []string{"*"}
		case ok && ns == "*":
			h = host
		case ok && ns == ".":
			h = namespace + "/" + host
		}
		list = append(list, h)
	}
	return list
}

// targetsByPort returns the workload's ports by the port of the gateway's services, for TCP and for UDP.
func targetsByPort(c cohort.Client) (tcp, udp map[uint32][]uint32) {
	tcp, udp = map[uint32][]uint32{}, map[uint32][]uint32{}
	for t := range c.Targets.All {
		all := tcp
		if t.UDP {
			all = udp
		}
		if !slices.Contains(all[t.Port], t.TargetPort) {
			all[t.Port] = append(all[t.Port], t.TargetPort)
		}
	}
	return tcp, udp
}

// Route returns the name of the route configuration of a server of HTTP. A server that terminates TLS has its own.
func (s Server) Route() string {
	if s.Use() == servers.SecureHTTP {
		return names.SecureGatewayRoute(s.GetPort().GetNumber(), s.GetPort().GetName(), s.Gateway.Name, s.Gateway.Namespace, s.Bind)
	}
	return names.GatewayRoute(s.Target, s.Bind)
}

// EachHost yields each host of the server, and the namespace whose VirtualServices may use it, "*" for any.
func (s Server) EachHost(yield func(namespace, host string) bool) {
	for _, h := range s.Hosts {
		ns, host, ok := strings.Cut(h, "/")
		if !ok {
			ns, host = "*", h
		}
		if !yield(ns, host) {
			return
		}
	}
}

// HasAutoPassthrough reports whether a gateway has a server of mode AUTO_PASSTHROUGH, for which it needs SNI-DNAT
// clusters.
func HasAutoPassthrough(c cohort.Client) bool {
	for o := range c.Gateways.All {
		if slices.ContainsFunc(o.Spec.(*networkingv1.Gateway).Servers, func(s *networkingv1alpha3.Server) bool {
			return servers.UseOf(s) == servers.AutoPassthrough
		}) {
			return true
		}
	}
	return false
}

// PassesOn reports whether gateways with a server of mode AUTO_PASSTHROUGH forward connections to a service, by the
// server name of each of its clusters. A service whose host is a pattern gets none, because no client sends such a
// name.
func PassesOn(s *registry.Service) bool {
	return !s.MeshExternal && s.Resolution != registry.Alias && !strings.HasPrefix(s.Host, "*")
}

// canonical returns an IP address in canonical form. Other text stays unchanged.
func canonical(address string) string {
	if a, err := netip.ParseAddr(address); err == nil {
		return a.String()
	}
	return address
}
