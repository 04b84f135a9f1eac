package rds

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// SidecarHosts generates the virtual hosts of a sidecar's route configuration: of a port, of one sniffed service, or of
// the HTTP proxy. Each host is a partition. The catch-all belongs to none: it changes only with the mesh or the
// Sidecar. The result is false if no listener has a route configuration of that name.
func (m *Routes) SidecarHosts(v *view.View, c cohort.Client, name string) (g engine.Generator[string], ok bool) {
	b := m.sidecarRouteBuilder(v, c, name)
	if b == nil || b.egress == nil {
		return g, false
	}
	return b.hosts(), true
}

// ServiceHost returns the virtual host of one service's port, or nil if its requests are not routed. Its domain is "*",
// for all requests.
func (m *Routes) ServiceHost(v *view.View, c cohort.Client, host string, port uint32) *envoy.Resource {
	b := m.sidecarRouteBuilder(v, c, names.SniffedRoute(host, port))
	if b == nil || b.egress == nil {
		return nil
	}
	for _, r := range b.virtualHost(host) {
		return r
	}
	return nil
}

// hosts generates the virtual hosts of the route configuration.
func (b *sidecarRouteBuilder) hosts() engine.Generator[string] {
	return engine.Generator[string]{
		All: func() []*envoy.Resource {
			var out []*envoy.Resource
			b.eachHost(func(host string) { out = append(out, b.virtualHosts(host)...) })
			if b.sniffed == "" {
				out = append(out, b.catchAllHost(b.view.HTTPFallback(b.scope)))
			}
			return out
		},
		Affected:   func(d *scope.Dirty) []string { return d.Hosts },
		Closure:    b.closure,
		Partitions: engine.Each(b.virtualHosts),
		Locate:     virtualHostLocator(b.route),
		Content:    true,
	}
}

// virtualHostLocator returns a function that locates the virtual hosts of a host.
func virtualHostLocator(route string) func(host string) engine.Locator {
	return func(host string) engine.Locator {
		prefix := envoy.HostName(route, names.Domain(host)) + ":"
		return func(name string) int { return frozen.ComparePrefix(name, prefix) }
	}
}

// sidecarRouteBuilder builds one route configuration of a sidecar.
type sidecarRouteBuilder struct {
	routeBuilder
	egress  *scope.Egress // nil if no listener has the route configuration
	sniffed string        // host of the only service; empty for all services

	virtualOnly map[virtualOnlyKey]*virtualOnly // cache for VirtualServices with many hosts
}

type virtualOnlyKey struct {
	virtual *scope.VirtualService
	port    uint32
}

// virtualOnly is the common part of all virtual hosts of one VirtualService whose hosts no service has.
type virtualOnly struct {
	bindings     frozen.List[binding]
	destinations func() frozen.List[destination]
}

// sidecarRouteBuilder returns the builder of a route configuration, or nil if no listener ever has one of that name.
func (m *Routes) sidecarRouteBuilder(v *view.View, c cohort.Client, name string) *sidecarRouteBuilder {
	n, ok := names.ParseRoute(name)
	if isSocketRoute(name) {
		n, ok = names.RouteName{}, true // its path may look like a port's route name
	}
	if ok && n.Scheme != "" || !ok && name != names.HTTPProxyRoute {
		return nil
	}
	sc := v.ScopeOf(c.Namespace, c.Sidecar)
	return &sidecarRouteBuilder{
		routeBuilder: routeBuilder{routes: m, view: v, cohort: c, scope: sc, route: name, port: n.Port},
		egress:       egressFor(sc, name, n), sniffed: n.Host, virtualOnly: map[virtualOnlyKey]*virtualOnly{},
	}
}

// in returns the builder for another view of the same Index.
func (b *sidecarRouteBuilder) in(v *view.View) *sidecarRouteBuilder {
	own := *b
	own.view = v
	return &own
}

// lacksService reports whether the route configuration belongs to one service that has no port for it.
func (b *sidecarRouteBuilder) lacksService() bool {
	return b.sniffed != "" && b.candidate(b.sniffed) == nil
}

// isSocketRoute reports whether a route configuration belongs to a socket.
func isSocketRoute(name string) bool { return strings.HasPrefix(name, "unix://") }

// egressFor returns the egress listener of a route configuration: the one of its port, else the catch-all, or the one
// of its socket. A service that the listener of its port does not import may be on the catch-all. It returns nil if
// there is none.
func egressFor(sc *scope.Scope, name string, n names.RouteName) *scope.Egress {
	var rest *scope.Egress
	for i := range sc.Egress {
		e := &sc.Egress[i]
		switch p := e.Listener.GetPort(); {
		case isSocketRoute(name):
			if p != nil && names.UnixRoute(e.Listener.Bind) == name {
				return e
			}
		case p == nil:
			rest = e
		case p.Number == n.Port:
			if n.Host != "" {
				if _, ok := e.Service(n.Host); !ok {
					continue
				}
			}
			return e
		}
	}
	return rest
}

// eachHost calls visit for each host that may have a virtual host.
func (b *sidecarRouteBuilder) eachHost(visit func(host string)) {
	if b.sniffed != "" {
		visit(b.sniffed)
		return
	}
	seen := map[string]bool{}
	routing := map[*scope.VirtualService]bool{} // VirtualServices that route a service
	for svc := range b.services(func(*registry.Service) bool { return true }) {
		if seen[svc.Host] {
			continue
		}
		seen[svc.Host] = true
		visit(svc.Host)
		if of, ok := b.servedPort(svc.Host); ok && of.virtual != nil {
			routing[of.virtual] = true
		}
	}
	virtualServices := maps.Keys(routing)
	if b.port == 80 {
		virtualServices = b.egress.VirtualServices
	}
	for vs := range virtualServices {
		for _, h := range vs.Hosts {
			if !seen[h] {
				seen[h] = true
				visit(h)
			}
		}
	}
}

// services returns the services for which match reports true that may have a port of the route configuration.
func (b *sidecarRouteBuilder) services(match func(*registry.Service) bool) iter.Seq[*registry.Service] {
	if b.port == 0 || b.egress.HTTPProxy {
		return b.view.ServicesMatching(match)
	}
	return b.view.ServicesByPort(b.port, match)
}

// closure returns the hosts, and all hosts that may have a domain in common with one of them.
func (b *sidecarRouteBuilder) closure(hosts []string) []string {
	if b.sniffed != "" {
		if slices.Contains(hosts, b.sniffed) {
			return []string{b.sniffed}
		}
		return nil
	}
	all := slices.Clone(hosts)
	for _, h := range hosts {
		all = append(all, b.conflictingHosts(names.Domains(names.Called{Host: h, Headless: true, Domain: b.cohort.Domain}))...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// servedPort is a service port of the route configuration. If a VirtualService routes it, virtual and the host by which
// it is bound are set.
type servedPort struct {
	service scope.Service
	port    *registry.Port
	virtual *scope.VirtualService
	boundBy string
}

// servedPort returns the port of the service that has a host here.
func (b *sidecarRouteBuilder) servedPort(host string) (servedPort, bool) {
	if b.sniffed != "" && host != b.sniffed {
		return servedPort{}, false
	}
	s, ok := b.egress.Service(host)
	if !ok {
		return servedPort{}, false
	}
	ports := iter.Seq[*registry.Port](s.ImportedPorts)
	if b.port != 0 {
		ports = s.ImportedPortsByNumber(b.port)
	}
	for p := range ports {
		if !p.Protocol.IsHTTP() && !p.Protocol.Sniffed() {
			continue
		}
		of := servedPort{service: s, port: p}
		for pattern := range b.view.Patterns(host) {
			if of.virtual = b.egress.VirtualServiceByHost(pattern); of.virtual != nil {
				of.boundBy = pattern
				break
			}
		}
		return of, true
	}
	return servedPort{}, false
}

// matches reports whether a host of a VirtualService, which may be a pattern, routes a service here.
func (b *sidecarRouteBuilder) matches(host string) bool {
	if !strings.HasPrefix(host, "*") {
		of, ok := b.servedPort(host)
		return ok && of.boundBy == host
	}
	covered := func(s *registry.Service) bool { return names.Covers(host, s.Host) || s.Host == host }
	for svc := range b.services(covered) {
		if of, ok := b.servedPort(svc.Host); ok && of.boundBy == host {
			return true
		}
	}
	return false
}

// covers reports whether a pattern covers a service here, which any VirtualService may route.
func (b *sidecarRouteBuilder) covers(pattern string) bool {
	for svc := range b.services(func(s *registry.Service) bool { return names.Covers(pattern, s.Host) || s.Host == pattern }) {
		if _, ok := b.servedPort(svc.Host); ok {
			return true
		}
	}
	return false
}

// virtualOnlyCandidate returns the candidate for a host that a VirtualService but no service has, or nil. Such a host
// is called on port 80, and on the ports of services that the same VirtualService routes.
func (b *sidecarRouteBuilder) virtualOnlyCandidate(host string) *candidate {
	if b.sniffed != "" || b.port == 0 {
		return nil
	}
	vs := b.egress.VirtualServiceByHost(host)
	if vs == nil || strings.HasPrefix(host, "*") && b.covers(host) {
		return nil
	}
	of := b.virtualOnlyOf(vs)
	if of == nil {
		return nil
	}
	c := &candidate{key: b.virtualHostKey(names.VirtualHost(host, b.port), "", b.port), domains: []string{names.Domain(host)},
		virtual: vs, host: host}
	c.key.bindings, c.virtualOnly = of.bindings, of
	return c
}

// virtualOnlyOf returns the common part of the virtual hosts of a VirtualService, or nil if it has no route for hosts
// without a service here.
func (b *sidecarRouteBuilder) virtualOnlyOf(vs *scope.VirtualService) *virtualOnly {
	at := virtualOnlyKey{vs, b.port}
	if of, ok := b.virtualOnly[at]; ok {
		return of
	}
	b.virtualOnly[at] = nil
	if b.port != 80 && !slices.ContainsFunc(vs.Hosts, func(h string) bool { return b.egress.VirtualServiceByHost(h) == vs && b.matches(h) }) {
		return nil
	}
	k := b.virtualHostKey("", "", b.port)
	k.bindings = frozen.ListOf(b.binding("mesh", vs))
	if b.routes.hasRoutes(k) { // without a route there is no virtual host, and requests are handled as without it
		destinations := sync.OnceValue(func() frozen.List[destination] { return b.destinations(k, nil) })
		b.virtualOnly[at] = &virtualOnly{k.bindings, destinations}
	}
	return b.virtualOnly[at]
}

// candidate is a virtual host with the domains that it wants. If two candidates want a domain, VirtualServices take
// precedence over services.
type candidate struct {
	key     virtualHostKey
	domains []string
	class   int // 0: a VirtualService without a service; 1: a service that a VirtualService routes; 2: another service
	service *registry.Service
	virtual *scope.VirtualService
	host    string

	virtualOnly *virtualOnly // set for class 0
}

// precedes reports whether c gets a domain that both want.
func (b *sidecarRouteBuilder) precedes(c, o *candidate) bool {
	switch {
	case c.class != o.class:
		return c.class < o.class
	case c.class == 0:
		return cmp.Or(b.view.CompareVirtualServices(b.scope.Namespace, c.virtual, o.virtual), c.hostIndex()-o.hostIndex()) < 0
	}
	return snapshot.ByServicePrecedence(c.service, o.service) < 0
}

// hostIndex returns the position of the host in its VirtualService.
func (c *candidate) hostIndex() int { return slices.Index(c.virtual.Hosts, c.host) }

// candidate returns the candidate for a host, or nil if it has none.
func (b *sidecarRouteBuilder) candidate(host string) *candidate {
	if of, ok := b.servedPort(host); ok {
		s := of.service.Service
		if of.virtual == nil && s.Resolution == registry.Alias {
			return nil // the aliased service has this name among its domains
		}
		c := &candidate{key: b.virtualHostKey(names.VirtualHost(host, of.port.Number), "", of.port.Number), class: 2,
			domains: []string{"*"}, service: s}
		c.key.session = b.sessionOf(s)
		if b.sniffed == "" {
			c.domains = names.Domains(names.Called{
				Host: host, Aliases: b.aliases(s), Addresses: b.addresses(s),
				Headless: s.VersionFor(b.cohort.Cluster).Headless, Domain: b.cohort.Domain,
			})
		}
		if s.Resolution != registry.Alias {
			c.key.service = s
		}
		if of.virtual != nil {
			c.class, c.virtual = 1, of.virtual
		}
		return c
	}
	return b.virtualOnlyCandidate(host)
}

// setDestinations sets the bindings and destinations in a candidate's key.
func (b *sidecarRouteBuilder) setDestinations(c *candidate) {
	if c.virtual != nil {
		c.key.bindings = frozen.ListOf(b.binding("mesh", c.virtual))
	}
	c.key.destinations = b.destinations(c.key, c.key.service)
}

// virtualHosts makes the virtual hosts of a host: one for each port in an HTTP proxy, else at most one.
func (b *sidecarRouteBuilder) virtualHosts(host string) []*envoy.Resource {
	if !b.egress.HTTPProxy {
		return b.virtualHost(host)
	}
	s, ok := b.egress.Service(host)
	if !ok {
		return nil
	}
	var all []*envoy.Resource
	seen := map[uint32]bool{}
	for p := range s.ImportedPorts {
		if !seen[p.Number] {
			seen[p.Number] = true
			at := *b
			at.port = p.Number
			all = append(all, at.virtualHost(host)...)
		}
	}
	slices.SortFunc(all, envoy.CompareNames)
	return all
}

// virtualHost makes the virtual host that a host has on the port.
func (b *sidecarRouteBuilder) virtualHost(host string) []*envoy.Resource {
	c := b.candidate(host)
	if c == nil {
		return nil
	}
	free := b.freeDomains(c, host)
	if len(free) == 0 {
		return nil
	}
	if b.egress.HTTPProxy {
		free = names.WithPort(free, b.port)
	}
	c.key.domains = strings.Join(free, "\n")
	if c.virtualOnly != nil {
		c.key.destinations = c.virtualOnly.destinations()
	} else {
		b.setDestinations(c)
	}
	if c.key.service == nil && !b.routes.hasRoutes(c.key) {
		return nil
	}
	return []*envoy.Resource{b.routes.virtualHost(c.key)}
}

// freeDomains returns the domains of a candidate that no preceding candidate wants. A host takes precedence over hosts
// for which it is a short name or an address: the host web.a of a ServiceEntry precedes the Service web of the
// namespace a.
func (b *sidecarRouteBuilder) freeDomains(c *candidate, host string) []string {
	taken, own := map[string]struct{}{}, names.Domain(host)
	if b.sniffed == "" {
		for _, h := range b.conflictingHosts(c.domains) {
			if _, served := b.servedPort(h); !served && !slices.Contains(c.domains, names.Domain(h)) {
				continue // without a service it wants no other domain
			}
			if h != host {
				if other := b.candidate(h); other != nil {
					precedes, theirs := b.precedes(other, c), names.Domain(h)
					for _, d := range other.domains {
						if d == theirs || precedes && d != own {
							taken[d] = struct{}{}
						}
					}
				}
			}
		}
	}
	free := make([]string, 0, len(c.domains))
	for _, d := range c.domains {
		if _, ok := taken[d]; ok {
			b.view.Log.Add(host, view.DuplicateDomain, b.route+"/"+d)
			continue
		}
		free = append(free, d)
	}
	return free
}

// conflictingHosts returns the hosts that may conflict over one of some domains. It may return too many.
func (b *sidecarRouteBuilder) conflictingHosts(domains []string) []string {
	var list, seen names.Distinct
	add := func(host string) {
		if !b.view.HasHost(host) || !list.Add(host) {
			return
		}
		if b.view.IsAlias(host) {
			if s := b.scope.ResolveAlias(host); s != nil {
				list.Add(s.Host) // the aliased service has this domain too
			}
		}
	}
	_, suffix, _ := strings.Cut(b.cohort.Domain, ".")
	label, only, more := ".", "", false // the host that begins with the label, and whether there are several
	for _, d := range domains {
		for _, name := range []string{d, strings.TrimPrefix(d, "*.")} { // a headless service also has its pods' names
			if name = strings.Trim(strings.TrimSuffix(name, "."), "[]"); !seen.Add(name) {
				continue
			}
			if strings.IndexAny(name, "0123456789") == 0 || strings.Contains(name, ":") { // it may be an address
				b.view.HostsAtAddress(name, add)
			}
			l, _, _ := strings.Cut(name, ".")
			if l != label {
				label = l
				only, more = b.view.HostByLabel(label)
			}
			if !more { // the usual case
				if only != "" {
					add(only)
				}
				continue
			}
			add(name)
			if strings.HasPrefix(name, "*") { // no pattern has short names
				continue
			}
			add(name + "." + suffix)                             // web.a
			add(strings.TrimSuffix(name, ".svc") + "." + suffix) // web.a.svc
			add(name + "." + b.cohort.Domain)                    // web
		}
	}
	return list.List
}

// addresses returns the addresses of a service in the proxy's cluster.
func (b *routeBuilder) addresses(s *registry.Service) []string {
	at := s.VersionFor(b.cohort.Cluster)
	if len(at.Addresses) == 0 && b.cohort.AutoAddress {
		return at.AutoAddress
	}
	return at.Addresses
}

// aliases returns the other names of a service, except for names that a VirtualService routes, which have virtual hosts
// of their own.
func (b *sidecarRouteBuilder) aliases(s *registry.Service) []string {
	var list []string
	for _, a := range b.scope.Aliases(s) {
		if of, ok := b.servedPort(a.Host); !ok || of.virtual == nil {
			list = append(list, a.Host)
		}
	}
	return list
}
