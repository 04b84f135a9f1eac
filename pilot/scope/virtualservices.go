package scope

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// VirtualService is a VirtualService with its delegates' routes merged in, and with fully qualified names.
type VirtualService struct {
	*kinds.Object
	Spec             *networkingv1.VirtualService
	Hosts            []string
	DestinationHosts []string // hosts of its destinations, sorted, without duplicates
	Gateways         []string // Gateways that it is bound to: "ns/name", or "mesh" for sidecars; without duplicates

	destinations []destination // the hosts of DestinationHosts with their ports
	delegates    []string      // "ns/name" of its delegates, existing or not
}

func (v *VirtualService) String() string { return v.Key.String() }

// destination is a host and port of a route. The port is 0 if the route has none.
type destination struct {
	host string
	port uint32
}

func compareDestinations(a, b destination) int {
	return cmp.Or(strings.Compare(a.host, b.host), cmp.Compare(a.port, b.port))
}

// ports returns the destinations of a host, sorted by port. A port is 0 if a route has none.
func (v *VirtualService) ports(host string) []destination {
	i, _ := slices.BinarySearchFunc(v.destinations, destination{host: host}, compareDestinations)
	n := i
	for n < len(v.destinations) && v.destinations[n].host == host {
		n++
	}
	return v.destinations[i:n]
}

// hasSourceLabels reports whether a VirtualService matches on source labels.
func (v *VirtualService) hasSourceLabels() bool {
	if v != nil {
		for _, labels := range SourceLabels(v.Spec) {
			if len(labels) > 0 {
				return true
			}
		}
	}
	return false
}

// routesConnections reports whether a VirtualService has routes for connections that are not HTTP, or are TLS.
func (v *VirtualService) routesConnections() bool { return len(v.Spec.Tcp)+len(v.Spec.Tls) > 0 }

// virtualServiceTables hold VirtualServices.
type virtualServiceTables struct {
	virtualServices  frozen.Table[*VirtualService] // ordered by namespace and name
	delegations      frozen.Table[delegation]      // ordered by delegate
	withSourceLabels frozen.Table[*VirtualService] // VirtualServices with a match on source labels, by precedence

	// The tables of VirtualServices that are bound to sidecars.
	mesh               frozen.Table[*VirtualService] // ordered by precedence
	meshHosts          frozen.Table[link]            // ordered by host
	partialMeshHosts   frozen.Table[link]            // the partial patterns of meshHosts
	meshDestinations   frozen.Table[link]            // ordered by the host of a destination
	connections        frozen.Table[link]            // the links of meshHosts with routes for connections
	partialConnections frozen.Table[link]            // the partial patterns of connections

	// The tables of VirtualServices that are bound to Gateways.
	gatewayHosts        frozen.Table[gatewayHost] // ordered by Gateway and the end of the host
	partialGatewayHosts frozen.Table[gatewayHost] // the partial patterns of gatewayHosts
	gatewayDestinations frozen.Table[link]        // ordered by the host of a destination
}

func (t *virtualServiceTables) all() []declared {
	return []declared{
		declare("virtualServices", &t.virtualServices, compareByName),
		declare("delegations", &t.delegations, compareDelegations),
		declare("withSourceLabels", &t.withSourceLabels, compareByPrecedence),
		declare("mesh", &t.mesh, compareByPrecedence),
		declare("meshHosts", &t.meshHosts, compareLinks),
		declare("partialMeshHosts", &t.partialMeshHosts, compareLinks),
		declare("meshDestinations", &t.meshDestinations, compareLinks),
		declare("connections", &t.connections, compareLinks),
		declare("partialConnections", &t.partialConnections, compareLinks),
		declare("gatewayHosts", &t.gatewayHosts, compareGatewayHosts),
		declare("partialGatewayHosts", &t.partialGatewayHosts, compareGatewayHosts),
		declare("gatewayDestinations", &t.gatewayDestinations, compareLinks),
	}
}

func compareByName(a, b *VirtualService) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func compareByPrecedence(a, b *VirtualService) int { return snapshot.ByPrecedence(a.Object, b.Object) }

// link relates a name to a VirtualService.
type link struct {
	name string
	*VirtualService
}

func (l link) String() string { return l.name + " of " + l.Key.String() }

func compareLinks(a, b link) int {
	if c := strings.Compare(a.name, b.name); c != 0 {
		return c
	}
	return compareByPrecedence(a.VirtualService, b.VirtualService)
}

func withName(name string) func(link) int {
	return func(l link) int { return strings.Compare(l.name, name) }
}

// gatewayHost relates a Gateway, "ns/name", and a host to a VirtualService that is bound to the Gateway and has the
// host.
type gatewayHost struct {
	gateway, host string
	*VirtualService
}

func (g gatewayHost) String() string { return g.gateway + " " + g.host + " of " + g.Key.String() }

func compareGatewayHosts(a, b gatewayHost) int {
	if c := strings.Compare(a.gateway, b.gateway); c != 0 {
		return c
	}
	if c := names.CompareEnds(a.host, b.host); c != 0 {
		return c
	}
	return compareByPrecedence(a.VirtualService, b.VirtualService)
}

// delegation relates a delegate, "ns/name", to a VirtualService that delegates to it.
type delegation struct {
	delegate string
	root     kinds.Key
}

func (d delegation) String() string { return d.delegate + " of " + d.root.String() }

func compareDelegations(a, b delegation) int {
	return cmp.Or(strings.Compare(a.delegate, b.delegate), strings.Compare(a.root.Namespace, b.root.Namespace),
		strings.Compare(a.root.Name, b.root.Name))
}

func withDelegate(to string) func(delegation) int {
	return func(d delegation) int { return strings.Compare(d.delegate, to) }
}

// setVirtualService adds a VirtualService to the tables, or removes it.
func (t *virtualServiceTables) setVirtualService(e *frozen.Edit, v *VirtualService, add bool) {
	putOrDelete(&t.virtualServices, e, add, v)
	for _, d := range v.delegates {
		putOrDelete(&t.delegations, e, add, delegation{d, v.Key})
	}
	if v.hasSourceLabels() {
		putOrDelete(&t.withSourceLabels, e, add, v)
	}
	for _, g := range v.Gateways {
		if g != "mesh" {
			for _, h := range v.Hosts {
				putOrDelete(&t.gatewayHosts, e, add, gatewayHost{g, h, v})
				if IsPartial(h) {
					putOrDelete(&t.partialGatewayHosts, e, add, gatewayHost{g, h, v})
				}
			}
			for _, h := range v.DestinationHosts {
				putOrDelete(&t.gatewayDestinations, e, add, link{h, v})
			}
			continue
		}
		putOrDelete(&t.mesh, e, add, v)
		for _, h := range v.Hosts {
			putOrDelete(&t.meshHosts, e, add, link{h, v})
			if IsPartial(h) {
				putOrDelete(&t.partialMeshHosts, e, add, link{h, v})
			}
			if v.routesConnections() {
				putOrDelete(&t.connections, e, add, link{h, v})
				if IsPartial(h) {
					putOrDelete(&t.partialConnections, e, add, link{h, v})
				}
			}
		}
		for _, h := range v.DestinationHosts {
			putOrDelete(&t.meshDestinations, e, add, link{h, v})
		}
	}
}

// virtualService returns the Snapshot's VirtualService with its delegates merged in. It returns nil if it does not
// exist, or is a delegate, which has no hosts.
func (x *Index) virtualService(k kinds.Key) *VirtualService {
	root := x.Snapshot.Object(k)
	if root == nil || len(VirtualSpec(root).Hosts) == 0 {
		return nil
	}
	v := &VirtualService{}
	v.Object = ResolveDelegates(root, x.Domain, x.RepeatedText, func(ns, name string) *kinds.Object {
		v.delegates = append(v.delegates, ns+"/"+name)
		return x.delegate(ns, name, k.Namespace)
	})
	v.Spec = VirtualSpec(v.Object)
	for _, h := range v.Spec.Hosts {
		v.Hosts = append(v.Hosts, names.FQDN(h, k.Namespace, x.Domain))
	}
	for h, port := range Destinations(v.Spec) {
		v.destinations = append(v.destinations, destination{names.Destination(h, k.Namespace, x.Domain), port})
	}
	slices.SortFunc(v.destinations, compareDestinations)
	v.destinations = slices.Clip(slices.Compact(v.destinations))
	for _, d := range v.destinations {
		if n := len(v.DestinationHosts); n == 0 || v.DestinationHosts[n-1] != d.host {
			v.DestinationHosts = append(v.DestinationHosts, d.host)
		}
	}
	v.Gateways = names.Gateways(v.Spec.Gateways, k.Namespace)
	slices.Sort(v.Gateways)
	v.Gateways = slices.Compact(v.Gateways)
	return v
}

// delegate returns a VirtualService to which VirtualServices of a namespace may delegate, or nil.
func (x *Index) delegate(namespace, name, of string) *kinds.Object {
	o := x.Snapshot.Object(kinds.Key{Kind: kinds.VirtualService, Namespace: namespace, Name: name})
	if o == nil || !exported(VirtualSpec(o).ExportTo, x.Mesh.GetDefaultVirtualServiceExportTo(), namespace, of) {
		return nil
	}
	return o
}

// RuleOrigin returns the VirtualService from which a rule of a VirtualService is, once its delegates are merged in, and
// the place of the rule there.
func (x *Index) RuleOrigin(k kinds.Key, rule int) (origin kinds.Key, place int) {
	root := x.Snapshot.Object(k)
	if root == nil {
		return k, rule
	}
	origin, place = k, rule
	n := 0
	resolveDelegates(root, x.Domain, x.RepeatedText, func(ns, name string) *kinds.Object { return x.delegate(ns, name, k.Namespace) },
		func(from kinds.Key, at int) {
			if n == rule {
				origin, place = from, at
			}
			n++
		})
	return origin, place
}

// virtualServiceInvalidation returns the invalidation rules for changed VirtualServices, and for hosts that depend on
// them.
func virtualServiceInvalidation() []InvalidationRule {
	return []InvalidationRule{
		{Name: "imports by routes", start: func(b *dirtyBuilder) { // a Sidecar imports the services that VirtualServices route to
			for l := range changedRows(b.last.meshDestinations, b.index.meshDestinations) {
				if b.index.importAffectsOthers(l.name) {
					b.addChangedHost(l.name)
				}
			}
		}},
		{Name: "routes of connections", start: func(b *dirtyBuilder) { // these routes are part of listeners
			for l := range changedRows(b.last.connections, b.index.connections) {
				b.eachCovered(l.name, b.addChangedHost)
			}
		}},
		{Name: "routes to a host", follow: func(b *dirtyBuilder, host string) {
			for l := range b.index.meshDestinations.Where(withName(host)) {
				if b.firstTime("destination", l.VirtualService) {
					for _, h := range l.Hosts {
						b.eachCovered(h, b.addHost)
					}
				}
			}
		}},
		// The virtual hosts of a VirtualService that have no service depend on the services that it routes.
		{Name: "hosts without a service", follow: func(b *dirtyBuilder, host string) {
			for pattern := range b.index.Patterns(host) {
				for l := range b.index.meshHosts.Where(withName(pattern)) {
					if b.firstTime("host", l.VirtualService) {
						for _, h := range l.Hosts {
							b.addHost(h)
						}
					}
				}
			}
		}},
		// The hosts of a VirtualService are treated as changed, because its routes also apply to their aliases.
		{Name: "routes", routes: func(b *dirtyBuilder) {
			for l := range changedRows(b.last.meshHosts, b.index.meshHosts) {
				b.eachCovered(l.name, b.addChangedHost)
			}
		}},
		{Name: "route destinations", routes: func(b *dirtyBuilder) {
			for l := range changedRows(b.last.meshDestinations, b.index.meshDestinations) {
				b.addHost(l.name)
			}
		}},
		{Name: "gateway routes", routes: func(b *dirtyBuilder) {
			for g := range changedRows(b.last.gatewayHosts, b.index.gatewayHosts) {
				b.addHost(g.host)
			}
		}},
		{Name: "source labels", start: func(b *dirtyBuilder) {
			for range changedRows(b.last.withSourceLabels, b.index.withSourceLabels) {
				b.dirty.Reassign.All = true
			}
		}},
	}
}

// Patterns returns a host and each pattern that covers it, the most specific first. It leaves partial patterns out.
func Patterns(host string) iter.Seq[string] { return patterns(host, nil) }

// IsPartial reports whether a pattern is partial, such as *-a.example.com: its star ends within a label.
func IsPartial(host string) bool {
	return strings.HasPrefix(host, "*") && host != "*" && !strings.HasPrefix(host, "*.")
}

// Patterns is the function Patterns, with the partial patterns of VirtualServices that are bound to sidecars.
func (x *Index) Patterns(host string) iter.Seq[string] { return patternsIn(x.partialMeshHosts, host) }

// patternsIn is the function Patterns, with the partial patterns of a table.
func patternsIn(partial frozen.Table[link], host string) iter.Seq[string] {
	if partial.Empty() {
		return Patterns(host)
	}
	return patterns(host, func(tail string) bool {
		_, ok := partial.First(func(l link) int { return strings.Compare(l.name[1:], tail) })
		return ok
	})
}

// ConnectionRoutes returns the imported VirtualServices with routes for connections that are bound to a host, by
// Index.CompareVirtualServices.
func (e *Egress) ConnectionRoutes(host string) []*VirtualService {
	x := e.scope.index
	if none(x, x.connections, func(link) int { return 0 }) { // the usual case
		return nil
	}
	var all []*VirtualService
	for pattern := range patternsIn(x.partialConnections, host) {
		for l := range x.connections.Where(withName(pattern)) {
			if e.imports(l.VirtualService) && !slices.Contains(all, l.VirtualService) {
				all = append(all, l.VirtualService)
			}
		}
	}
	x.sortVirtualServices(all, e.scope.Namespace)
	return all
}

// patterns is Patterns, with the partial patterns for whose tail (after the star) partial reports true.
func patterns(host string, partial func(tail string) bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(host) {
			return
		}
		for i := range len(host) + 1 {
			tail := host[i:]
			if tail != "" && tail[0] != '.' && (partial == nil || !partial(tail)) {
				continue
			}
			if pattern := "*" + tail; pattern != host && !yield(pattern) {
				return
			}
		}
	}
}

// VirtualServicesOfGateway returns the VirtualServices bound to a Gateway, "ns/name", that have a host or a pattern
// covering it, by precedence.
func (x *Index) VirtualServicesOfGateway(name, host, proxyNamespace string) []*VirtualService {
	var all []*VirtualService
	var partial func(tail string) bool
	if !none(x, x.partialGatewayHosts, func(e gatewayHost) int { return strings.Compare(e.gateway, name) }) {
		partial = func(tail string) bool {
			_, ok := x.partialGatewayHosts.First(func(e gatewayHost) int {
				if c := strings.Compare(e.gateway, name); c != 0 {
					return c
				}
				return names.CompareEnds(e.host, "*"+tail)
			})
			return ok
		}
	}
	for pattern := range patterns(host, partial) {
		all = append(all, x.VirtualServicesOfGatewayHost(name, pattern, proxyNamespace)...)
	}
	x.sortVirtualServices(all, proxyNamespace)
	return slices.Compact(all)
}

// VirtualServicesOfGatewayHost returns the VirtualServices bound to a Gateway, "ns/name", that name exactly this host
// or pattern, by precedence.
func (x *Index) VirtualServicesOfGatewayHost(name, host, proxyNamespace string) []*VirtualService {
	var all []*VirtualService
	for e := range x.gatewayHosts.Where(func(e gatewayHost) int {
		if c := strings.Compare(e.gateway, name); c != 0 {
			return c
		}
		return names.CompareEnds(e.host, host)
	}) {
		if x.visibility(e.VirtualService, proxyNamespace) != hidden {
			all = append(all, e.VirtualService)
		}
	}
	x.sortVirtualServices(all, proxyNamespace)
	return all
}

// GatewayHasHost reports whether a VirtualService that is bound to a Gateway, "ns/name", names exactly this host or
// pattern.
func (x *Index) GatewayHasHost(gateway, host string, v *VirtualService) bool {
	_, ok := x.gatewayHosts.Get(gatewayHost{gateway, host, v})
	return ok
}

// HostsOfGateway returns the hosts of VirtualServices bound to a Gateway, "ns/name", that a host or a pattern covers,
// each with its VirtualService. Pairs with the same host are adjacent.
func (x *Index) HostsOfGateway(name, pattern, proxyNamespace string) iter.Seq2[string, *VirtualService] {
	end, wild := strings.CutPrefix(pattern, "*")
	return func(yield func(string, *VirtualService) bool) {
		for e := range x.gatewayHosts.Where(func(e gatewayHost) int {
			if c := strings.Compare(e.gateway, name); c != 0 || wild && end == "" {
				return c
			}
			if !wild {
				return names.CompareEnds(e.host, pattern)
			}
			return names.CompareEnd(e.host, end)
		}) {
			if names.Covers(pattern, e.host) && x.visibility(e.VirtualService, proxyNamespace) != hidden && !yield(e.host, e.VirtualService) {
				return
			}
		}
	}
}

// visibility returns the visibility of a VirtualService in a namespace. One that is exported to "~" is visible in all
// namespaces or in none.
func (x *Index) visibility(v *VirtualService, namespace string) visibility {
	exportTo := v.Spec.ExportTo
	if len(exportTo) == 0 {
		exportTo = x.Mesh.GetDefaultVirtualServiceExportTo()
	}
	visible := visibilityIn(exportTo, nil, v.Namespace, namespace)
	if visible != public && slices.Contains(exportTo, "~") {
		return hidden
	}
	return visible
}

// CompareVirtualServices orders VirtualServices by precedence for the proxies of a namespace: first those private to
// it, then those exported to it by name, then public ones. Each group is ordered by age.
func (x *Index) CompareVirtualServices(namespace string, a, b *VirtualService) int {
	return cmp.Or(cmp.Compare(x.visibility(a, namespace), x.visibility(b, namespace)), compareByPrecedence(a, b))
}

func (x *Index) sortVirtualServices(list []*VirtualService, namespace string) {
	if len(list) > 1 {
		slices.SortFunc(list, func(a, b *VirtualService) int { return x.CompareVirtualServices(namespace, a, b) })
	}
}

// GatewayVirtualServicesTo returns the VirtualServices bound to Gateways that send traffic to a host.
func (x *Index) GatewayVirtualServicesTo(host string) iter.Seq[*VirtualService] {
	return func(yield func(*VirtualService) bool) {
		for l := range x.gatewayDestinations.Where(withName(host)) {
			if !yield(l.VirtualService) {
				return
			}
		}
	}
}

// WithSourceLabels returns the VirtualServices that match on source labels.
func (x *Index) WithSourceLabels() iter.Seq[*VirtualService] { return x.withSourceLabels.All }

// SourceLabels calls yield for each match of a VirtualService, with its source labels, in a fixed order.
func SourceLabels(v *networkingv1.VirtualService) func(yield func(match any, labels map[string]string) bool) {
	return func(yield func(any, map[string]string) bool) {
		for _, h := range v.Http {
			for _, m := range h.Match {
				if !yield(m, m.SourceLabels) {
					return
				}
			}
		}
		for _, h := range v.Tls {
			for _, m := range h.Match {
				if !yield(m, m.SourceLabels) {
					return
				}
			}
		}
		for _, h := range v.Tcp {
			for _, m := range h.Match {
				if !yield(m, m.SourceLabels) {
					return
				}
			}
		}
	}
}

// ExcludedMatches returns which matches of a VirtualService do not apply to a workload with those labels: their
// positions in SourceLabels, as a string that can be part of a key.
func ExcludedMatches(v *networkingv1.VirtualService, labels registry.Labels) string {
	var b []byte
	i := 0
	for _, want := range SourceLabels(v) {
		if !labels.Match(want) {
			b = strconv.AppendInt(b, int64(i), 10)
			b = append(b, ' ')
		}
		i++
	}
	return string(b)
}

// MatchFilter returns a function that reports whether a proxy has the source labels of a match. excludedMatches is the
// result of ExcludedMatches for the proxy. MatchFilter returns nil if all matches apply.
func MatchFilter(v *networkingv1.VirtualService, excludedMatches string) func(match any) bool {
	if excludedMatches == "" {
		return nil
	}
	ordinals := map[string]struct{}{}
	for o := range strings.FieldsSeq(excludedMatches) {
		ordinals[o] = struct{}{}
	}
	excluded := map[any]bool{}
	i := 0
	for m := range SourceLabels(v) {
		_, excluded[m] = ordinals[strconv.Itoa(i)]
		i++
	}
	return func(match any) bool { return !excluded[match] }
}
