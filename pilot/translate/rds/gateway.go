package rds

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/gateway"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// GatewayHosts generates the virtual hosts of a gateway's route configuration. Each host is a partition. Hosts with the
// same routes are merged into the virtual host of the most specific one. The others have none.
func (m *Routes) GatewayHosts(v *view.View, c cohort.Client, name string) engine.Generator[string] {
	b := sync.OnceValue(func() *gatewayRouteBuilder { return m.gatewayRouteBuilder(v, c, name) })
	return engine.Generator[string]{
		All:        func() []*envoy.Resource { return b().buildAll() },
		Affected:   func(d *scope.Dirty) []string { return d.Hosts },
		Closure:    func(hosts []string) []string { return b().closure(hosts) },
		Partitions: engine.Each(func(host string) []*envoy.Resource { return b().virtualHosts(host) }),
		Locate:     virtualHostLocator(name),
		Content:    true,
	}
}

// gatewayRouteBuilder builds one route configuration of a gateway.
type gatewayRouteBuilder struct {
	routeBuilder
	servers    []gatewayServer      // servers with this route configuration, by precedence
	hosts      names.HostIndex[int] // indexes of servers by their hosts
	gateways   []hostedGateway      // Gateways of the servers
	redirected map[string]uint32    // the server's port by host, for hosts that are redirected to https, with routes or without
	routed     map[string]*routedHost
	merged     map[mergeKey]*mergedHosts
}

// gatewayServer is a server with its hosts. Each host has the namespaces whose VirtualServices may use it; "*" is any.
type gatewayServer struct {
	gateway.Server
	name    string // name of the Gateway, "ns/name"
	hosts   map[string][]string
	partial []string // partial patterns of hosts, which scope.Patterns does not yield
}

// hostedGateway is a Gateway with the patterns among the hosts of its servers.
type hostedGateway struct {
	name     string
	patterns []string
}

// routedHost is how requests for one host are handled.
type routedHost struct {
	mergeKey
	tls bool // whether plaintext requests are redirected to https
}

// mergeKey is equal for hosts that are merged into one virtual host.
type mergeKey struct {
	bindings frozen.List[binding]
	port     uint32
}

// mergedHosts is the hosts with one merge key, the most specific first.
type mergedHosts struct {
	hosts []string
	mixed bool // some, but not all, are redirected to https, so they are not merged
}

// newMergedHosts sorts hosts with the same merge key.
func (b *gatewayRouteBuilder) newMergedHosts(hosts []string) *mergedHosts {
	slices.SortFunc(hosts, compareSpecificity)
	return &mergedHosts{hosts, slices.ContainsFunc(hosts, func(h string) bool { return b.routedHost(h).tls != b.routedHost(hosts[0]).tls })}
}

// blackhole is the host in the name of blackholeHost's virtual host.
const blackhole = "blackhole"

func (m *Routes) gatewayRouteBuilder(v *view.View, c cohort.Client, name string) *gatewayRouteBuilder {
	b := &gatewayRouteBuilder{
		routeBuilder: routeBuilder{routes: m, view: v, cohort: c, scope: v.ScopeOf(c.Namespace, nil), route: name},
		redirected:   map[string]uint32{}, routed: map[string]*routedHost{}, merged: map[mergeKey]*mergedHosts{},
	}
	gateways := map[string]int{}
	for i, s := range v.Gateways.ServersOf(c, name) {
		g := gatewayServer{Server: s, name: s.Name(), hosts: map[string][]string{}}
		at, known := gateways[g.name]
		if !known {
			at = len(b.gateways)
			gateways[g.name] = at
			b.gateways = append(b.gateways, hostedGateway{name: g.name})
		}
		for ns, h := range s.EachHost {
			if g.hosts[h] == nil {
				b.hosts.Add(h, i)
				if strings.HasPrefix(h, "*") {
					b.gateways[at].patterns = append(b.gateways[at].patterns, h)
				}
			}
			g.hosts[h] = append(g.hosts[h], ns)
			if scope.IsPartial(h) {
				g.partial = append(g.partial, h)
			}
		}
		if s.GetTls().GetHttpsRedirect() {
			for _, h := range s.Hosts { // may have a namespace
				b.redirected[h] = cmp.Or(b.redirected[h], s.Port.Number)
			}
		}
		b.servers = append(b.servers, g)
	}
	for i := range b.gateways {
		g := &b.gateways[i]
		slices.Sort(g.patterns)
		g.patterns = slices.Compact(g.patterns)
		if slices.Contains(g.patterns, "*") {
			g.patterns = []string{"*"}
		}
	}
	return b
}

// serversWith returns the indexes of the servers that have a host, or a pattern that covers it, by precedence.
func (b *gatewayRouteBuilder) serversWith(host string) []int {
	var list []int
	for _, servers := range b.hosts.Covering(host) {
		list = append(list, servers...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// routable yields the hosts of VirtualServices that the servers' patterns cover. It may yield a host twice.
func (b *gatewayRouteBuilder) routable(yield func(string) bool) {
	for _, g := range b.gateways {
		for _, pattern := range g.patterns {
			for h := range b.view.HostsOfGateway(g.name, pattern, b.cohort.Namespace) {
				if !yield(h) {
					return
				}
			}
		}
	}
}

// admits reports whether a VirtualService, one of Index.VirtualServicesOfGateway, may have a host on the server: one of
// the two names it, and the other names or covers it.
func (s *gatewayServer) admits(r view.Reader, vs *scope.VirtualService, host string) bool {
	open := func(h string) bool {
		spaces := s.hosts[h]
		return slices.Contains(spaces, "*") || slices.Contains(spaces, vs.Namespace)
	}
	if open(host) { // vs names or covers it
		return true
	}
	if !r.GatewayHasHost(s.name, host, vs) {
		return false
	}
	for pattern := range scope.Patterns(host) {
		if open(pattern) {
			return true
		}
	}
	return slices.ContainsFunc(s.partial, func(h string) bool { return open(h) && names.Covers(h, host) })
}

// routedHost returns how requests for a host are handled, or nil without routes and redirect.
func (b *gatewayRouteBuilder) routedHost(host string) *routedHost {
	if r, ok := b.routed[host]; ok {
		return r
	}
	var r routedHost
	var virtual []binding
	r.port, r.tls = b.redirected[host], b.redirected[host] != 0
	for _, i := range b.serversWith(host) {
		s := &b.servers[i]
		candidates := b.view.VirtualServicesOfGatewayHost
		if len(s.hosts[host]) > 0 { // a server that names the host itself also matches by its patterns
			candidates = b.view.VirtualServicesOfGateway
		}
		for _, vs := range candidates(s.name, host, b.cohort.Namespace) {
			if !s.admits(b.view, vs, host) {
				continue
			}
			x := b.binding(s.name, vs)
			if port := cmp.Or(r.port, s.Port.Number); b.routes.hooks.HasRoutes(b.virtualHostKey("", "", port).options(x)) {
				virtual, r.port = append(virtual, x), port
				r.tls = r.tls || s.GetTls().GetHttpsRedirect()
			}
		}
	}
	b.routed[host] = nil
	if len(virtual) > 0 || r.tls {
		r.bindings = frozen.ListOf(virtual...)
		b.routed[host] = &r
	}
	return b.routed[host]
}

// mergedWith returns the hosts with a merge key.
func (b *gatewayRouteBuilder) mergedWith(k mergeKey) *mergedHosts {
	if m, ok := b.merged[k]; ok {
		return m
	}
	var list []string
	candidates := map[string]struct{}{}
	var smallest *binding // all bindings have each of the hosts, so the smallest is enough
	for x := range k.bindings.All {
		if smallest == nil || len(scope.VirtualSpec(x.object).Hosts) < len(scope.VirtualSpec(smallest.object).Hosts) {
			smallest = &x
		}
	}
	if smallest != nil {
		for h := range b.coveredHosts(slices.Values(virtualServiceHosts(*smallest, b.view.Domain()))) {
			candidates[h] = struct{}{}
		}
	} else {
		for h := range b.redirected {
			candidates[h] = struct{}{}
		}
	}
	for h := range candidates {
		if r := b.routedHost(h); r != nil && r.mergeKey == k {
			list = append(list, h)
		}
	}
	b.merged[k] = b.newMergedHosts(list)
	return b.merged[k]
}

func virtualServiceHosts(x binding, domain string) []string {
	list := slices.Clone(scope.VirtualSpec(x.object).Hosts)
	for i, h := range list {
		list[i] = names.FQDN(h, x.object.Namespace, domain)
	}
	return list
}

// coveredHosts yields some hosts of VirtualServices, and the servers' hosts that they cover.
func (b *gatewayRouteBuilder) coveredHosts(hosts iter.Seq[string]) iter.Seq[string] {
	return func(yield func(string) bool) {
		for h := range hosts {
			if !yield(h) {
				return
			}
			if !strings.HasPrefix(h, "*") {
				continue
			}
			for own := range b.hosts.Covered(h) {
				if !yield(own) {
					return
				}
			}
		}
	}
}

// allHosts returns the hosts that may have a virtual host.
func (b *gatewayRouteBuilder) allHosts() []string {
	all := map[string]struct{}{blackhole: {}}
	for h := range b.redirected {
		all[h] = struct{}{}
	}
	for h := range b.hosts.Hosts {
		all[h] = struct{}{}
	}
	for h := range b.routable {
		all[h] = struct{}{}
	}
	return slices.Sorted(maps.Keys(all))
}

func (b *gatewayRouteBuilder) buildAll() []*envoy.Resource {
	hosts := b.allHosts()
	// Merging all hosts at once is cheaper than looking for the others of each.
	byKey := map[mergeKey][]string{}
	for _, h := range hosts {
		if r := b.routedHost(h); r != nil {
			byKey[r.mergeKey] = append(byKey[r.mergeKey], h)
		}
	}
	for k, list := range byKey {
		b.merged[k] = b.newMergedHosts(list)
	}
	var made []*envoy.Resource
	for _, h := range hosts {
		made = append(made, b.virtualHosts(h)...)
	}
	return made
}

// closure returns the hosts whose virtual hosts may change when the VirtualServices or services of some hosts change.
// Hosts are merged because they have a VirtualService in common. If that one changed, its hosts are in the result; if
// not, they still have it in common. Hosts without routes are merged without a VirtualService, and are added if one of
// them changes.
func (b *gatewayRouteBuilder) closure(hosts []string) []string {
	all := map[string]struct{}{blackhole: {}}
	add := func(hosts []string) {
		for h := range b.coveredHosts(slices.Values(hosts)) {
			all[h] = struct{}{}
		}
	}
	add(hosts)
	seen := map[*scope.VirtualService]struct{}{}
	for _, h := range hosts {
		for vs := range b.view.GatewayVirtualServicesTo(h) {
			if _, ok := seen[vs]; !ok {
				seen[vs] = struct{}{}
				add(vs.Hosts)
			}
		}
	}
	redirected, added := false, map[*kinds.Object]struct{}{}
	for _, h := range slices.Collect(maps.Keys(all)) {
		redirected = redirected || b.redirected[h] != 0
		if r := b.routedHost(h); r != nil {
			for x := range r.bindings.All {
				if _, ok := added[x.object]; !ok {
					added[x.object] = struct{}{}
					add(virtualServiceHosts(x, b.view.Domain()))
				}
			}
		}
	}
	if redirected { // a redirected host may have gained or lost its routes
		for h := range b.redirected {
			if b.routedHost(h).bindings.Empty() {
				all[h] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// virtualHosts makes the virtual host that a host gives its name to, if there is one.
func (b *gatewayRouteBuilder) virtualHosts(host string) []*envoy.Resource {
	r := b.routedHost(host)
	if r == nil {
		if host == blackhole && b.noHosts() {
			n, _ := names.ParseRoute(b.route)
			if len(b.servers) > 0 {
				n.Port = b.servers[0].Port.Number
			}
			return []*envoy.Resource{b.blackholeHost(n.Port)}
		}
		return nil
	}
	m := b.mergedWith(r.mergeKey)
	domains := m.hosts
	if m.mixed {
		domains = []string{host}
	}
	if domains[0] != host {
		return nil
	}
	written := lists.Map(domains, names.Domain)
	k := b.virtualHostKey(names.VirtualHost(host, r.port), strings.Join(written, "\n"), r.port)
	k.gateway, k.tls, k.bindings = true, r.tls, r.bindings
	if s := b.servers[0]; len(s.HTTP3) > 0 { // a server that terminates TLS is the only one of its route configuration
		k.http3 = s.Port.Number
	}
	k.destinations = b.destinations(k, nil)
	k.session = b.session(k)
	return []*envoy.Resource{b.routes.virtualHost(k)}
}

// noHosts reports whether no host has a virtual host.
func (b *gatewayRouteBuilder) noHosts() bool {
	routes := func(hosts iter.Seq[string]) bool {
		return lists.Any(hosts, func(h string) bool { return b.routedHost(h) != nil })
	}
	if routes(b.routable) || routes(b.hosts.Hosts) {
		return false
	}
	return len(b.redirected) == 0
}

// compareSpecificity orders hosts: exact ones before patterns, longer before shorter ones, then by name.
func compareSpecificity(a, b string) int {
	if x, y := strings.HasPrefix(a, "*"), strings.HasPrefix(b, "*"); x != y {
		if x {
			return 1
		}
		return -1
	}
	return cmp.Or(len(b)-len(a), strings.Compare(a, b))
}
