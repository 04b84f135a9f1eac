package translate

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/registry"
)

// headerKey is all that a RouteConfiguration depends on beside its virtual hosts.
type headerKey struct{ name string }

// routeKey is all that a whole RouteConfiguration depends on.
type routeKey struct {
	header *envoy.Resource
	hosts  frozen.List[*envoy.Resource]
}

// hostKey is all that one virtual host depends on.
type hostKey struct {
	name     string
	domains  string            // one a line
	route    string            // the route configuration that it is part of
	port     uint32            // of the listener, or of the gateway's server; 0 where the listener's port says nothing
	service  *registry.Service // whose default route it has where no VirtualService routes; nil without one
	virtual  frozen.List[binding]
	reached  frozen.List[destination]
	mesh     *mesh.Config
	gateway  bool
	proxy    string // the proxy's namespace
	domain   string // the cluster's: cluster.local
	fallback string // of the last virtual host: the cluster for what no other matched; block_all where it is BlackHoleCluster
	tls      bool   // plaintext requests are redirected to https
}

// binding is a VirtualService as it applies to a proxy.
type binding struct {
	object  *kinds.Object
	gateway string // "mesh", or the Gateway that it is bound to
	foreign string // its matches that do not hold for the proxy, as scope.Foreign writes them
}

// destination is a service that routes of a virtual host lead to, with the rules that say how its load is spread.
type destination struct {
	host    string
	service *registry.Service // nil if there is none
	rules   destinationrule.Rules
}

// route makes a route configuration as a cohort sees it.
func (v *view) route(c cohort.Scope, name string) (r *envoy.Resource, exists bool) {
	header := v.t.headers.Get(headerKey{name})
	var hosts []*envoy.Resource
	if c.Type == node.Router {
		hosts = v.gatewayHosts(c, name)
	} else {
		hosts = v.sidecarHosts(c, name)
	}
	return v.t.routes.Get(routeKey{header, frozen.Of(hosts...)}), len(hosts) > 0
}

func buildHeader(k headerKey) *envoy.Resource {
	return envoy.NewResource(k.name, &routev3.RouteConfiguration{
		Name:                           k.name,
		ValidateClusters:               envoy.Bool(false), // a route may come before its cluster
		IgnorePortInHostMatching:       true,
		MaxDirectResponseBodySizeBytes: envoy.UInt32(1 << 20),
	})
}

func buildRoute(k routeKey) *envoy.Resource {
	return envoy.NewRoute(k.header, slices.Collect(k.hosts.All))
}

// sidecarHosts makes the virtual hosts of a sidecar's route configuration: of a port, of one sniffed service, or of the HTTP proxy.
func (v *view) sidecarHosts(c cohort.Scope, name string) []*envoy.Resource {
	sc := v.index.Of(c.Namespace, c.Sidecar)
	n, ok := names.ParseRoute(name)
	if ok && n.Scheme != "" || !ok && name != names.HTTPProxyRoute && !strings.HasPrefix(name, "/") {
		return nil
	}
	b := hosts{view: v, cohort: c, scope: sc, route: name, port: n.Port, taken: map[string]bool{}}
	e := egressFor(sc, name, n.Port)
	if e == nil {
		return nil
	}
	bound := map[string]*scope.VirtualService{} // the first VirtualService of each host
	for _, vs := range e.VirtualServices {
		if len(vs.Spec.Http) == 0 {
			continue
		}
		for _, h := range vs.Hosts {
			if bound[h] == nil {
				bound[h] = vs
			}
		}
	}
	type served struct {
		service scope.Service
		port    *registry.Port
		virtual *scope.VirtualService
	}
	var found []served
	b.bound = map[string]bool{}
	used, met := map[*scope.VirtualService]bool{}, map[string]bool{} // VirtualServices, and their hosts, that a service of this port has
	for _, s := range e.Services {
		if n.Host != "" && s.Host != n.Host {
			continue
		}
		for p := range s.Imported {
			if n.Port != 0 && p.Number != n.Port || !p.Protocol.IsHTTP() && !p.Protocol.Sniffed() {
				continue
			}
			vs, host := virtualFor(bound, s.Host)
			if vs != nil {
				used[vs], met[host], b.bound[s.Host] = true, true, true
			} else if s.Resolution == registry.Alias {
				continue // another name of a service, which has it among its own
			}
			found = append(found, served{s, p, vs})
		}
	}
	// What a VirtualService says comes before what is so by default, also where both claim a name.
	if n.Host == "" && n.Port != 0 {
		for _, vs := range e.VirtualServices {
			for _, h := range vs.Hosts {
				// Hosts that only VirtualServices know are called on port 80, and on the ports of the services that they are listed with.
				if bound[h] == vs && !met[h] && (n.Port == 80 || used[vs]) {
					b.addVirtual(h, vs)
				}
			}
		}
	}
	for _, f := range found {
		if f.virtual != nil {
			b.addService(f.service.Service, f.port, f.virtual, n.Host != "")
		}
	}
	for _, f := range found {
		if f.virtual == nil {
			b.addService(f.service.Service, f.port, nil, n.Host != "")
		}
	}
	if n.Host != "" {
		return b.sorted()
	}
	return append(b.sorted(), b.last(v.fallback(sc)))
}

// egressFor gives the egress listener whose routes a name means: the one of that port or socket, else the catch-all.
func egressFor(sc *scope.Scope, name string, port uint32) *scope.Egress {
	var rest *scope.Egress
	for i := range sc.Egress {
		e := &sc.Egress[i]
		switch p := e.Listener.GetPort(); {
		case p == nil:
			rest = e
		case strings.HasPrefix(name, "/"):
			if names.UnixRoute(e.Listener.Bind) == name {
				return e
			}
		case p.Number == port:
			return e
		}
	}
	return rest
}

// virtualFor gives the VirtualService for a service's host, its own or that of the most specific wildcard, and the host by which it is bound.
func virtualFor(bound map[string]*scope.VirtualService, host string) (*scope.VirtualService, string) {
	if vs := bound[host]; vs != nil {
		return vs, host
	}
	for rest := strings.TrimPrefix(host, "*."); ; {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			return bound["*"], "*"
		}
		rest = rest[i+1:]
		if vs := bound["*."+rest]; vs != nil {
			return vs, "*." + rest
		}
	}
}

// hosts gathers the virtual hosts of one route configuration.
type hosts struct {
	view   *view
	cohort cohort.Scope
	scope  *scope.Scope
	route  string
	port   uint32
	taken  map[string]bool                // domains: no two virtual hosts may have one
	bound  map[string]bool                // services' hosts that have a VirtualService: as aliases they are hosts of their own
	others map[*registry.Service][]string // by the service that they stand for: the ExternalName services in scope that are not bound
	made   []*envoy.Resource
}

func (b *hosts) sorted() []*envoy.Resource {
	slices.SortStableFunc(b.made, func(x, y *envoy.Resource) int { return strings.Compare(x.Name, y.Name) })
	return b.made
}

// claim keeps those domains that no virtual host before has.
func (b *hosts) claim(domains []string) string {
	var free []string
	for _, d := range domains {
		if b.taken[d] {
			b.view.problem(DuplicateDomain, b.route+"/"+d)
			continue
		}
		b.taken[d] = true
		free = append(free, d)
	}
	return strings.Join(free, "\n")
}

func (b *hosts) key(name, domains string, port uint32) hostKey {
	return hostKey{name: name, domains: domains, route: b.route, port: port, mesh: b.view.Mesh, proxy: b.cohort.Namespace, domain: b.view.Domain}
}

// addService adds the virtual host of a service's port.
func (b *hosts) addService(s *registry.Service, p *registry.Port, vs *scope.VirtualService, sniffed bool) {
	domains := []string{"*"}
	if !sniffed {
		domains = names.Domains(names.Called{Host: s.Host, Aliases: b.aliases(s), Addresses: b.addresses(s), Headless: s.As(b.cohort.Cluster).Headless, Domain: b.cohort.Domain})
	}
	claimed := b.claim(domains)
	if claimed == "" {
		return
	}
	k := b.key(names.VirtualHost(s.Host, p.Number), claimed, p.Number)
	if s.Resolution != registry.Alias {
		k.service = s
	}
	if vs != nil {
		b.bind(&k, "mesh", vs)
	}
	k.reached = b.reach(k, k.service)
	if k.service == nil && !routes(k) {
		return
	}
	b.made = append(b.made, b.view.host(k))
}

func (b *hosts) addresses(s *registry.Service) []string {
	at := s.As(b.cohort.Cluster)
	if len(at.Addresses) == 0 && b.cohort.AutoAddress {
		return at.AutoAddress
	}
	return at.Addresses
}

// aliases are the ExternalName services in scope that are other names for a service. They are looked up once, when it is known which are bound.
func (b *hosts) aliases(s *registry.Service) []string {
	if b.others == nil {
		b.others = map[*registry.Service][]string{}
		for _, a := range b.scope.Services() {
			if a.Resolution == registry.Alias && !b.bound[a.Host] {
				of := target(b.scope, a.Host)
				b.others[of] = append(b.others[of], a.Host)
			}
		}
	}
	return b.others[s]
}

// target gives the service that a host means, whatever other names it goes by; nil if there is none.
func target(sc *scope.Scope, host string) *registry.Service {
	const longest = 8 // of a chain of names; a circle has no end
	for range longest {
		s := sc.ServiceByHost(host)
		if s == nil || s.Resolution != registry.Alias {
			return s
		}
		host = s.ExternalName
	}
	return nil
}

// addVirtual adds the virtual host of a VirtualService's host that no service has.
func (b *hosts) addVirtual(host string, vs *scope.VirtualService) {
	k := b.key(names.VirtualHost(host, b.port), host, b.port)
	b.bind(&k, "mesh", vs)
	k.reached = b.reach(k, nil)
	if routes(k) && b.claim([]string{host}) != "" { // no route, no host: requests go where they would without it
		b.made = append(b.made, b.view.host(k))
	}
}

// bind lets VirtualServices say how a virtual host routes; an earlier one's routes come first.
func (b *hosts) bind(k *hostKey, gateway string, list ...*scope.VirtualService) {
	var bound []binding
	for _, vs := range list {
		x := binding{object: vs.Object, gateway: gateway}
		for f := range b.cohort.Foreign.All {
			if f.Object == vs.Object {
				x.foreign = f.Matches
			}
		}
		bound = append(bound, x)
	}
	k.virtual = frozen.Of(append(slices.Collect(k.virtual.All), bound...)...)
}

// reach finds the services that a virtual host's routes lead to.
func (b *hosts) reach(k hostKey, s *registry.Service) frozen.List[destination] {
	var list []destination
	add := func(host string) {
		if slices.ContainsFunc(list, func(d destination) bool { return d.host == host }) {
			return
		}
		d := destination{host: host, service: target(b.scope, host)}
		if d.service != nil {
			d.rules = b.view.rules(b.cohort, d.service)
		}
		list = append(list, d)
	}
	if s != nil {
		add(s.Host)
	}
	for x := range k.virtual.All {
		for host := range scope.Destinations(virtualSpec(x.object)) {
			add(names.FQDN(host, x.object.Namespace, b.view.Domain))
		}
	}
	return frozen.Of(list...)
}

// last makes the virtual host for whatever no other matches.
func (b *hosts) last(fallback string) *envoy.Resource {
	k := b.key(names.AllowAny, "*", 0)
	if k.fallback = fallback; fallback == names.BlackHoleCluster {
		k.name = names.BlockAll
	}
	return b.view.host(k)
}

// gatewayHosts makes the virtual hosts of a gateway's route configuration.
func (v *view) gatewayHosts(c cohort.Scope, name string) []*envoy.Resource {
	b := hosts{view: v, cohort: c, scope: v.index.Of(c.Namespace, nil), route: name, taken: map[string]bool{}}
	var keys []*hostKey
	byHost := map[string]*hostKey{}
	at := func(host string, s server) *hostKey {
		k := byHost[host]
		if k == nil {
			n := b.key(names.VirtualHost(host, s.Port.Number), host, s.Port.Number)
			n.gateway = true
			k = &n
			byHost[host] = k
			keys = append(keys, k)
		}
		k.tls = k.tls || s.GetTls().GetHttpsRedirect()
		return k
	}
	var port uint32
	for _, s := range v.servers(c) {
		if s.route() != name {
			continue
		}
		if port == 0 {
			port = s.Port.Number
		}
		gateway := s.gateway.Namespace + "/" + s.gateway.Name
		for _, vs := range v.index.OfGateway(gateway, c.Namespace) {
			if len(vs.Spec.Http) == 0 {
				continue
			}
			for _, host := range vs.Hosts {
				if host, ok := s.admits(vs.Namespace, host); ok {
					b.bind(at(host, s), gateway, vs)
				}
			}
		}
		if s.GetTls().GetHttpsRedirect() {
			b.redirectAll(s, byHost, at)
		}
	}
	var out []*hostKey
	for _, k := range keys {
		k.reached = b.reach(*k, nil)
		if !k.tls && !routes(*k) {
			continue
		}
		out = append(out, k)
	}
	for _, k := range merged(out) {
		b.made = append(b.made, v.host(*k))
	}
	if len(b.made) == 0 && port != 0 {
		return []*envoy.Resource{v.host(b.key(names.VirtualHost("blackhole", port), "*", port))}
	}
	return b.sorted()
}

// admits tells whether a VirtualService of a namespace may take a host on the server, and which: the more specific of what both say.
func (s server) admits(namespace, host string) (string, bool) {
	for ns, h := range s.reach {
		if ns != "*" && ns != namespace {
			continue
		}
		if names.Covers(h, host) {
			return host, true
		}
		if names.Covers(host, h) {
			return h, true
		}
	}
	return "", false
}

// redirectAll redirects the server's hosts that no VirtualService routes: written as the user wrote them, in one virtual host.
func (b *hosts) redirectAll(s server, byHost map[string]*hostKey, at func(string, server) *hostKey) {
	var rest []string
	for _, h := range s.Hosts {
		if byHost[h] == nil {
			rest = append(rest, h)
		}
	}
	if len(rest) > 0 {
		k := at(rest[0], s)
		k.domains = strings.Join(rest, "\n")
		for _, h := range rest {
			byHost[h] = k
		}
	}
}

// merged joins virtual hosts that route alike: under the first one's name, with all domains sorted.
func merged(keys []*hostKey) []*hostKey {
	type content struct {
		virtual frozen.List[binding]
		port    uint32
		tls     bool
	}
	slices.SortStableFunc(keys, func(a, b *hostKey) int { return exactFirst(a.name, b.name) })
	first := map[content]*hostKey{}
	var out []*hostKey
	for _, k := range keys {
		c := content{k.virtual, k.port, k.tls}
		if f := first[c]; f != nil && !k.virtual.Empty() {
			f.domains += "\n" + k.domains
			continue
		}
		first[c] = k
		out = append(out, k)
	}
	return out
}
