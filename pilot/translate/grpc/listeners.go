package grpc

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/hooks"
	"github.com/istiod-lite/istiod-lite/pilot/translate/rds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Listeners makes the listeners of gRPC's clients and servers. Safe for concurrent use.
type Listeners struct {
	hooks    *hooks.Hooks
	cache    *engine.Cache
	outbound *envoy.MemoTable[outboundKey]
}

// NewListeners returns Listeners with their resources in a memo and their Sets in a cache.
func NewListeners(m *envoy.Memo, h *hooks.Hooks, c *engine.Cache) *Listeners {
	return &Listeners{hooks: h, cache: c, outbound: envoy.NewMemoTable(m, buildOutbound)}
}

// Get returns the listeners of a list of names. The listeners of servers are the workload's own.
func (m *Listeners) Get(v *view.View, c cohort.Key, list *envoy.Names) (envoy.Union, error) {
	shared, err := byName(m.cache, v, client(envoy.ListenerType, c), list, func(name string) *envoy.Resource {
		return m.outboundListener(v, c.Client.Value(), name)
	})
	u := envoy.Union{Shared: shared}
	if err != nil || c.Inbound.None() || shared.Len() == list.Len() {
		return u, err
	}
	u.Own, err = byName(m.cache, v, engine.Key{Type: envoy.ListenerType, Inbound: c.Inbound.Weak()}, list, func(name string) *envoy.Resource {
		return m.inboundListener(v, c.Inbound.Value(), name)
	})
	return u, err
}

// outboundKey is the whole input of the listener of a client: the name by which it calls a service, and the service's
// own name, port and session.
type outboundKey struct {
	name, host string
	port       uint32
	session    registry.Session
}

// outboundListener returns the listener of a client that calls host:port, or nil if there is no such service.
func (m *Listeners) outboundListener(v *view.View, c cohort.Client, name string) *envoy.Resource {
	host, port, ok := splitPort(name)
	if !ok || strings.HasPrefix(name, names.ProxylessServer) {
		return nil
	}
	sc := v.ScopeOf(c.Namespace, c.Sidecar)
	for _, full := range fullNames(host, c.Domain) {
		s := sc.ResolveAlias(full)
		if s == nil {
			continue
		}
		if in, ok := sc.Service(s.Host); ok && hasPort(in, port) {
			k := outboundKey{name: name, host: s.Host, port: port}
			if v.PersistentSessions() {
				k.session = registry.PersistentSession(s.Labels)
			}
			return m.outbound.Get(k)
		}
		return nil
	}
	return nil
}

// hasPort reports whether a service has a port of that number that is not UDP.
func hasPort(s scope.Service, port uint32) bool {
	return lists.Any(s.ImportedPortsByNumber(port), func(p *registry.Port) bool { return p.Protocol != protocols.UDP })
}

// fullNames returns the hosts for which a name may be short in a namespace whose domain is <ns>.svc.<suffix>, best
// first.
func fullNames(name, domain string) []string {
	name = strings.TrimSuffix(name, ".")
	list := []string{name}
	for domain != "" {
		list = append(list, name+"."+domain)
		if strings.HasPrefix(domain, "svc.") {
			list = append(list, name+domain[len("svc"):])
			break
		}
		_, domain, _ = strings.Cut(domain, ".")
	}
	return list
}

// splitPort splits host:port. An IPv6 address is in brackets.
func splitPort(name string) (host string, port uint32, ok bool) {
	host, p, err := net.SplitHostPort(name)
	n, bad := strconv.ParseUint(p, 10, 16)
	return host, uint32(n), err == nil && bad == nil && host != "" && n != 0
}

func buildOutbound(k outboundKey) *envoy.Resource {
	manager := &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads(),
			RouteConfigName: names.Cluster(names.Outbound, k.port, "", k.host)}},
		HttpFilters: []*hcmv3.HttpFilter{envoy.HTTPFilter(faultFilter, envoy.Any(&faultv3.HTTPFault{})), router()},
	}
	if k.session != (registry.Session{}) {
		manager.HttpFilters = slices.Insert(manager.HttpFilters, 0, rds.SessionFilter(k.session))
	}
	return envoy.NewResource(k.name, &listenerv3.Listener{Name: k.name, ApiListener: &listenerv3.ApiListener{ApiListener: envoy.Any(manager)}})
}

func router() *hcmv3.HttpFilter {
	return envoy.HTTPFilter("envoy.filters.http.router", envoy.Any(&routerv3.Router{}))
}

// inboundListener returns the listener of a server at an address, or nil if the workload serves no such port. Servers
// choose the names, so it is not cached by name.
func (m *Listeners) inboundListener(v *view.View, c cohort.Inbound, name string) *envoy.Resource {
	at, ok := strings.CutPrefix(name, names.ProxylessServer)
	host, port, valid := splitPort(at)
	ip, err := netip.ParseAddr(host)
	if !ok || !valid || err != nil {
		return nil
	}
	for t := range c.Targets.All {
		if t.TargetPort != port {
			continue
		}
		chain := &listenerv3.FilterChain{Name: "inbound-plaintext"}
		if m.hooks.Mode(m.hooks.TransportSelection(c.Selections), port) != feature.Disable {
			chain.Name = "inbound-mtls"
			chain.TransportSocket = tlsSocket(&tlsv3.DownstreamTlsContext{CommonTlsContext: meshTLS(nil),
				RequireClientCertificate: envoy.Bool(true)})
		}
		filters := m.hooks.HTTPFilters(feature.Chain{
			Proxy: feature.Proxy{Mesh: v.Mesh(), Tags: c.Tags}, Direction: feature.Inbound, HTTP: true, Protocol: protocols.GRPC,
		}, c.Selections)
		chain.Filters = []*listenerv3.Filter{envoy.NetworkFilter("envoy.filters.network.http_connection_manager",
			envoy.Any(&hcmv3.HttpConnectionManager{
				RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
					Name: "inbound", VirtualHosts: []*routev3.VirtualHost{{
						Name: "inbound", Domains: []string{"*"}, Routes: []*routev3.Route{{
							Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
							Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}},
						}},
					}},
				}},
				HttpFilters: append(policies(filters), router()),
			}))}
		return envoy.NewResource(name, &listenerv3.Listener{Name: name, Address: envoy.Address(ip.String(), port),
			FilterChains: []*listenerv3.FilterChain{chain}})
	}
	return nil
}
