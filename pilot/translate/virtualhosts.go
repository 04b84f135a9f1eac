package translate

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// hostRecipe makes the virtual hosts of a sidecar's route configuration, of a port, of one sniffed service, or of the HTTP proxy: each host's by itself, and
// the one for whatever no other matches.
func hostRecipe(c cohort.Scope, name string) recipe[string] {
	var at *routing // one for all the hosts of a view, for what it finds out of VirtualServices with many
	routing := func(v *view) *routing {
		if at == nil || at.view != v {
			at, _ = v.routing(c, name)
		}
		return at
	}
	return recipe[string]{
		whole: func(v *view) []*envoy.Resource {
			b := routing(v)
			var out []*envoy.Resource
			b.each(func(host string) { out = append(out, b.made(host)...) })
			if b.sniffed == "" {
				out = append(out, b.last(v.fallback(b.scope)))
			}
			return out
		},
		touched: func(changes *scope.Dirty) []string { return changes.Hosts },
		spread:  func(v *view, hosts []string) []string { return routing(v).spread(hosts) },
		units:   func(v *view, _ []string) func(host string) []*envoy.Resource { return routing(v).made },
		of:      hostOfRoute(name),
		content: true,
	}
}

// hostOfRoute finds the virtual host of a host.
func hostOfRoute(route string) func(host string) unitOf {
	return func(host string) unitOf {
		prefix := envoy.HostName(route, names.Domain(host)) + ":"
		return func(r *envoy.Resource) int { return frozen.ComparePrefix(r.Name, prefix) }
	}
}

// routing is one route configuration of a sidecar at work.
type routing struct {
	hosts
	egress  *scope.Egress
	sniffed string // the only service that it is of; empty: all

	bare map[bareKey]*bare // of VirtualServices with hosts that no service has, so that each of many is asked once
}

type bareKey struct {
	virtual *scope.VirtualService
	port    uint32
}

// bare is what the virtual hosts of a VirtualService that no service has have in common.
type bare struct {
	virtual frozen.List[binding]
	reached frozen.List[destination]
}

// routing says what a route configuration is of. false: of nothing.
func (v *view) routing(c cohort.Scope, name string) (*routing, bool) {
	n, ok := names.ParseRoute(name)
	if ofSocket(name) {
		n, ok = names.RouteName{}, true // whatever its path looks like
	}
	if ok && n.Scheme != "" || !ok && name != names.HTTPProxyRoute {
		return nil, false
	}
	sc := v.Index.ScopeOf(c.Namespace, c.Sidecar)
	b := &routing{hosts{view: v, cohort: c, scope: sc, route: name, port: n.Port}, egressFor(sc, name, n.Port), n.Host, map[bareKey]*bare{}}
	return b, b.egress != nil
}

// ofSocket tells the name of a socket's routes: its path, or its name in the abstract namespace.
func ofSocket(name string) bool { return strings.HasPrefix(name, "/") || strings.HasPrefix(name, "@") }

// egressFor gives the egress listener whose routes a name means: the one of that port or socket, else the catch-all.
func egressFor(sc *scope.Scope, name string, port uint32) *scope.Egress {
	var rest *scope.Egress
	for i := range sc.Egress {
		e := &sc.Egress[i]
		switch p := e.Listener.GetPort(); {
		case p == nil:
			rest = e
		case ofSocket(name):
			if names.UnixRoute(e.Listener.Bind) == name {
				return e
			}
		case p.Number == port:
			return e
		}
	}
	return rest
}

// each calls visit for each host that may have a virtual host.
func (b *routing) each(visit func(host string)) {
	if b.sniffed != "" {
		visit(b.sniffed)
		return
	}
	seen := map[string]bool{}
	virtual := map[*scope.VirtualService]bool{} // those that route a service here
	for svc := range b.services() {
		if seen[svc.Host] {
			continue
		}
		seen[svc.Host] = true
		visit(svc.Host)
		if of, ok := b.served(svc.Host); ok && of.virtual != nil {
			virtual[of.virtual] = true
		}
	}
	also := maps.Keys(virtual)
	if b.port == 80 {
		also = b.egress.VirtualServices
	}
	for vs := range also {
		for _, h := range vs.Hosts {
			if !seen[h] {
				seen[h] = true
				visit(h)
			}
		}
	}
}

// services returns those that may have a port of the route configuration.
func (b *routing) services() iter.Seq[*registry.Service] {
	if b.port == 0 || b.egress.HTTPProxy {
		return b.view.Index.EachService
	}
	return b.view.Index.ServicesByPort(b.port)
}

// spread gives the hosts, and those that may be called by a name of theirs.
func (b *routing) spread(hosts []string) []string {
	if b.sniffed != "" {
		if slices.Contains(hosts, b.sniffed) {
			return []string{b.sniffed}
		}
		return nil
	}
	all := slices.Clone(hosts)
	for _, h := range hosts {
		all = append(all, b.rivals(names.Domains(names.Called{Host: h, Headless: true, Domain: b.cohort.Domain}))...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// served is a service port of the route configuration, with the VirtualService that routes it, if one does, and the host by which that is bound.
type served struct {
	service scope.Service
	port    *registry.Port
	virtual *scope.VirtualService
	by      string
}

// served finds what serves a host here.
func (b *routing) served(host string) (served, bool) {
	if b.sniffed != "" && host != b.sniffed {
		return served{}, false
	}
	s, ok := b.egress.Service(host)
	if !ok {
		return served{}, false
	}
	ports := iter.Seq[*registry.Port](s.ImportedPorts)
	if b.port != 0 {
		ports = s.ImportedPortsByNumber(b.port)
	}
	for p := range ports {
		if !p.Protocol.IsHTTP() && !p.Protocol.Sniffed() {
			continue
		}
		of := served{service: s, port: p}
		for pattern := range b.view.Index.Patterns(host) {
			if of.virtual = b.egress.VirtualServiceByHost(pattern); of.virtual != nil {
				of.by = pattern
				break
			}
		}
		return of, true
	}
	return served{}, false
}

// meets tells that a host of a VirtualService, which may be a pattern, is that of a service here.
func (b *routing) meets(host string) bool {
	if !strings.HasPrefix(host, "*") {
		of, ok := b.served(host)
		return ok && of.by == host
	}
	for svc := range b.services() {
		if names.Covers(host, svc.Host) || svc.Host == host {
			if of, ok := b.served(svc.Host); ok && of.by == host {
				return true
			}
		}
	}
	return false
}

// alone returns the claim of a host that no service has, by its VirtualService. Such are called on port 80, and on the ports of the services that they are listed with.
func (b *routing) alone(host string) *claim {
	if b.sniffed != "" || b.port == 0 {
		return nil
	}
	vs := b.egress.VirtualServiceByHost(host)
	if vs == nil || strings.HasPrefix(host, "*") && b.meets(host) {
		return nil
	}
	of := b.bareOf(vs)
	if of == nil {
		return nil
	}
	c := &claim{key: b.key(names.VirtualHost(host, b.port), "", b.port), domains: []string{names.Domain(host)}, virtual: vs, host: host}
	c.key.virtual, c.key.reached = of.virtual, of.reached
	return c
}

// bareOf returns nil for a VirtualService that has nothing here for hosts without a service.
func (b *routing) bareOf(vs *scope.VirtualService) *bare {
	at := bareKey{vs, b.port}
	if of, ok := b.bare[at]; ok {
		return of
	}
	b.bare[at] = nil
	if b.port != 80 && !slices.ContainsFunc(vs.Hosts, func(h string) bool { return b.egress.VirtualServiceByHost(h) == vs && b.meets(h) }) {
		return nil
	}
	c := &claim{key: b.key("", "", b.port), virtual: vs}
	b.answer(c)
	if routes(c.key) { // no route, no host: requests go where they would without it
		b.bare[at] = &bare{c.key.virtual, c.key.reached}
	}
	return b.bare[at]
}

// claim is a virtual host with the domains that it wants. What a VirtualService says comes before what is so by default, also where both want a name.
type claim struct {
	key     hostKey
	domains []string
	class   int // 0: of a VirtualService alone; 1: of a service that a VirtualService routes; 2: of a service
	service *registry.Service
	virtual *scope.VirtualService
	host    string
}

// before tells whose domain it is that two want.
func (c *claim) before(o *claim) bool {
	switch {
	case c.class != o.class:
		return c.class < o.class
	case c.class == 0:
		return cmp.Or(snapshot.ByPrecedence(c.virtual.Object, o.virtual.Object), c.which()-o.which()) < 0
	}
	return snapshot.ByServicePrecedence(c.service, o.service) < 0
}

// which returns the place of the host among those of its VirtualService.
func (c *claim) which() int { return slices.Index(c.virtual.Hosts, c.host) }

// claim gives that of a host, nil if it has none.
func (b *routing) claim(host string) *claim {
	if of, ok := b.served(host); ok {
		s := of.service.Service
		if of.virtual == nil && s.Resolution == registry.Alias {
			return nil // another name of a service, which has it among its own
		}
		c := &claim{key: b.key(names.VirtualHost(host, of.port.Number), "", of.port.Number), class: 2, domains: []string{"*"}, service: s}
		if b.sniffed == "" {
			c.domains = names.Domains(names.Called{Host: host, Aliases: b.aliases(s), Addresses: b.addresses(s), Headless: s.VersionFor(b.cohort.Cluster).Headless, Domain: b.cohort.Domain})
		}
		if s.Resolution != registry.Alias {
			c.key.service = s
		}
		if of.virtual != nil {
			c.class, c.virtual = 1, of.virtual
		}
		return c
	}
	return b.alone(host)
}

// answer says what requests to a host are answered with.
func (b *routing) answer(c *claim) {
	if c.virtual != nil {
		c.key.virtual = frozen.ListOf(b.binding("mesh", c.virtual))
	}
	c.key.reached = b.reach(c.key, c.key.service)
}

// made makes the virtual hosts of a host: in an HTTP proxy one for each port, else one if it has any.
func (b *routing) made(host string) []*envoy.Resource {
	if !b.egress.HTTPProxy {
		return b.one(host)
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
			all = append(all, at.one(host)...)
		}
	}
	slices.SortFunc(all, compareNames)
	return all
}

// one makes the virtual host that a host has on the port.
func (b *routing) one(host string) []*envoy.Resource {
	c := b.claim(host)
	if c == nil {
		return nil
	}
	if n := b.view.notes; n != nil {
		n.unit = host
	}
	free := b.free(c, host)
	if len(free) == 0 {
		return nil
	}
	if b.egress.HTTPProxy {
		free = names.WithPort(free, b.port)
	}
	c.key.domains = strings.Join(free, "\n")
	if c.class != 0 {
		b.answer(c)
	}
	if c.key.service == nil && !routes(c.key) {
		return nil
	}
	return []*envoy.Resource{b.view.host(c.key)}
}

// free gives those domains that no virtual host before wants.
func (b *routing) free(c *claim, host string) []string {
	taken := map[string]struct{}{}
	if b.sniffed == "" {
		for _, h := range b.rivals(c.domains) {
			if h != host {
				if o := b.claim(h); o != nil && o.before(c) {
					for _, d := range o.domains {
						taken[d] = struct{}{}
					}
				}
			}
		}
	}
	free := make([]string, 0, len(c.domains))
	for _, d := range c.domains {
		if _, ok := taken[d]; ok {
			b.view.problem(DuplicateDomain, b.route+"/"+d)
			continue
		}
		free = append(free, d)
	}
	return free
}

// rivals gives the hosts that may have one of some domains: those that have one in a mesh of any kind are among them.
func (b *routing) rivals(domains []string) []string {
	var list, seen names.Distinct
	add := func(host string) {
		if !b.view.Index.HasHost(host) || !list.Add(host) {
			return
		}
		if s := target(b.scope, host); s != nil {
			list.Add(s.Host) // which is called by this name too
		}
	}
	_, suffix, _ := strings.Cut(b.cohort.Domain, ".")
	label, only, more := ".", "", false // the hosts that begin with the label
	for _, d := range domains {
		for _, name := range []string{d, strings.TrimPrefix(d, "*.")} { // a headless service is called by its pods' names too
			if name = strings.Trim(strings.TrimSuffix(name, "."), "[]"); !seen.Add(name) {
				continue
			}
			if strings.IndexAny(name, "0123456789") == 0 || strings.Contains(name, ":") { // it may be an address
				b.view.Index.HostsAtAddress(name, add)
			}
			l, _, _ := strings.Cut(name, ".")
			if l != label {
				label = l
				only, more = b.view.Index.HostByLabel(label)
			}
			if !more { // which is so of most
				if only != "" {
					add(only)
				}
				continue
			}
			add(name)
			add(name + "." + suffix)                             // web.a
			add(strings.TrimSuffix(name, ".svc") + "." + suffix) // web.a.svc
			add(name + "." + b.cohort.Domain)                    // web
		}
	}
	return list.List
}

// addresses are those by which a service is called here.
func (b *hosts) addresses(s *registry.Service) []string {
	at := s.VersionFor(b.cohort.Cluster)
	if len(at.Addresses) == 0 && b.cohort.AutoAddress {
		return at.AutoAddress
	}
	return at.Addresses
}

// aliases are the other names of a service, unless a VirtualService routes them: then they are hosts of their own.
func (b *routing) aliases(s *registry.Service) []string {
	var list []string
	for _, a := range b.view.aliases(b.scope, s) {
		if of, ok := b.served(a.Host); !ok || of.virtual == nil {
			list = append(list, a.Host)
		}
	}
	return list
}

// aliases are the ExternalName services in scope that are other names for a service, by precedence.
func (v *view) aliases(sc *scope.Scope, s *registry.Service) []*registry.Service {
	var found []*registry.Service
	v.Index.Aliases(s.Host, func(a *registry.Service) {
		if sc.ServiceByHost(a.Host) == a && target(sc, a.Host) == s {
			found = append(found, a)
		}
	})
	slices.SortFunc(found, snapshot.ByServicePrecedence)
	return found
}

// target gives the service that a host means, whatever other names it goes by; nil if there is none.
func target(sc *scope.Scope, host string) *registry.Service {
	for range scope.MaxAliasDepth {
		s := sc.ServiceByHost(host)
		if s == nil || s.Resolution != registry.Alias {
			return s
		}
		host = s.ExternalName
	}
	return nil
}
