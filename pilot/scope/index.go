package scope

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Index holds one Snapshot's services and routing objects in the orders in which they are looked up. Immutable apart
// from its caches; safe for concurrent use.
type Index struct {
	*snapshot.Snapshot
	tables
	Dirty Dirty // against the Index that it was made from

	clusterLocal []clusterLocalRule
	observer     snapshot.Observer // of look-ups; where there is one, no shortcut may read more than the result depends on

	mu     sync.Mutex
	scopes map[scopeKey]*Scope

	rulesCache rulesCache

	endpointServicesOnce sync.Once
	endpointServices     map[string][]*registry.Service // by endpoint address; made on first use
}

// VirtualService is a VirtualService with its delegates' routes merged in, and with fully qualified names.
type VirtualService struct {
	*kinds.Object
	Spec             *networkingv1.VirtualService
	Hosts            []string
	DestinationHosts []string // the hosts that its routes lead to, sorted, without duplicates
	Gateways         []string // the Gateways that it is bound to: "ns/name", or "mesh" for sidecars; without duplicates

	destinations []destination // by DestinationHosts, with their ports
	delegates    []string      // "ns/name" of its delegates, whether they exist or not
}

// destination is a host and port that a route leads to. The port is 0 where the route has none.
type destination struct {
	host string
	port uint32
}

func compareDestinations(a, b destination) int {
	return cmp.Or(strings.Compare(a.host, b.host), cmp.Compare(a.port, b.port))
}

// ports returns the destinations of a host, sorted by port. A port is 0 where a route has none.
func (v *VirtualService) ports(host string) []destination {
	i, _ := slices.BinarySearchFunc(v.destinations, destination{host: host}, compareDestinations)
	n := i
	for n < len(v.destinations) && v.destinations[n].host == host {
		n++
	}
	return v.destinations[i:n]
}

// NewIndex returns the Index of a Snapshot. last is an earlier Index, or nil. If last is of the Snapshot before, the
// cost is proportional to the changes. rules decide what is dirty; nil stands for Rules().
func NewIndex(s *snapshot.Snapshot, last *Index, rules []Rule) *Index {
	if rules == nil {
		rules = Rules()
	}
	x := &Index{Snapshot: s, scopes: map[scopeKey]*Scope{}}
	if last == nil || last.Revision+1 != s.Revision {
		x.tables, x.clusterLocal = newTables(), clusterLocalRules(s)
		x.apply(fullDiff(s))
		x.Dirty = Dirty{All: true, Reassign: Reassign{All: true}}
		return x
	}
	x.tables, x.clusterLocal = last.tables, last.clusterLocal
	if s.Diff.Global {
		x.clusterLocal = clusterLocalRules(s)
	}
	x.Dirty = x.findDirty(last, x.apply(&s.Diff), rules)
	return x
}

// Kinds returns the kinds of the objects from which scopes are made.
func Kinds() []*kinds.Kind {
	return []*kinds.Kind{kinds.VirtualService, kinds.DestinationRule, kinds.Sidecar, kinds.Gateway}
}

// structural reports whether scopes are made from objects of a kind.
func structural(kind *kinds.Kind) bool { return slices.Contains(Kinds(), kind) }

// fullDiff returns the Diff between nothing and a Snapshot.
func fullDiff(s *snapshot.Snapshot) *snapshot.Diff {
	d := &snapshot.Diff{}
	for _, svc := range s.Services() {
		d.Services = append(d.Services, snapshot.ServiceChange{New: svc})
	}
	for _, k := range []*kinds.Kind{kinds.DestinationRule, kinds.VirtualService} {
		for _, o := range s.AllObjects(k) {
			d.Configs = append(d.Configs, snapshot.ConfigChange{New: o})
		}
	}
	return d
}

// virtualChange is a VirtualService, delegates included, before and after; nil where it did not or does not exist.
type virtualChange struct{ old, new *VirtualService }

// apply updates the tables and returns the VirtualServices that changed.
func (x *Index) apply(d *snapshot.Diff) []virtualChange {
	if len(d.Services)+len(d.Configs)+len(d.OldEndpoints) == 0 {
		return nil
	}
	t, e := &x.tables, &frozen.Edit{}
	oldEndpoints := make(map[registry.ServiceKey]*snapshot.Endpoints, len(d.OldEndpoints))
	for _, b := range d.OldEndpoints {
		oldEndpoints[b.ServiceKey] = b.Endpoints
	}
	endpoints := func(s *registry.Service) *snapshot.Endpoints {
		if s != nil {
			if eps := oldEndpoints[s.Key()]; eps != nil {
				return eps
			}
			return x.Endpoints(s.Key())
		}
		return nil
	}
	for _, c := range d.Services {
		t.setService(e, c.Old, endpoints(c.Old), false)
		if c.New != nil {
			t.setService(e, c.New, x.Endpoints(c.New.Key()), true)
			delete(oldEndpoints, c.New.Key())
		}
	}
	for k, eps := range oldEndpoints { // of services that did not change
		if s := x.Service(k); s != nil && locatedByEndpoints(s) {
			t.setService(e, s, eps, false)
			t.setService(e, s, x.Endpoints(k), true)
		}
	}
	roots := map[kinds.Key]struct{}{}
	for _, c := range d.Configs {
		o := c.New
		if o == nil {
			o = c.Old
		}
		switch o.Kind {
		case kinds.DestinationRule:
			if c.Old != nil {
				t.setRule(e, x.rule(c.Old), false)
			}
			if c.New != nil {
				t.setRule(e, x.rule(c.New), true)
			}
		case kinds.VirtualService:
			roots[o.Key] = struct{}{}
			for r := range t.delegations.Where(withDelegate(o.Namespace + "/" + o.Name)) {
				roots[r.root] = struct{}{}
			}
		}
	}
	var changed []virtualChange
	for k := range roots {
		c := virtualChange{new: x.virtualService(k)}
		c.old, _ = t.virtualServices.Get(&VirtualService{Object: &kinds.Object{Key: k}})
		if c.old != nil {
			t.setVirtualService(e, c.old, false)
		}
		if c.new != nil {
			t.setVirtualService(e, c.new, true)
		}
		changed = append(changed, c)
	}
	e.Done()
	return changed
}

func withDelegate(to string) func(delegation) int {
	return func(d delegation) int { return strings.Compare(d.delegate, to) }
}

func (x *Index) rule(o *kinds.Object) rule {
	return rule{names.FQDN(o.Spec.(*networkingv1.DestinationRule).Host, o.Namespace, x.Domain), o}
}

// virtualService returns the Snapshot's VirtualService, delegates included. It returns nil for one that does not exist,
// and for a delegate, which has no hosts.
func (x *Index) virtualService(k kinds.Key) *VirtualService {
	root := x.Snapshot.Object(k)
	if root == nil || len(virtualSpec(root).Hosts) == 0 {
		return nil
	}
	v := &VirtualService{}
	v.Object = ResolveDelegates(root, x.Domain, x.RepeatedText, func(ns, name string) *kinds.Object {
		v.delegates = append(v.delegates, ns+"/"+name)
		return x.Snapshot.Object(kinds.Key{Kind: kinds.VirtualService, Namespace: ns, Name: name})
	})
	v.Spec = virtualSpec(v.Object)
	for _, h := range v.Spec.Hosts {
		v.Hosts = append(v.Hosts, names.FQDN(h, k.Namespace, x.Domain))
	}
	for h, port := range Destinations(v.Spec) {
		v.destinations = append(v.destinations, destination{names.FQDN(h, k.Namespace, x.Domain), port})
	}
	slices.SortFunc(v.destinations, compareDestinations)
	v.destinations = slices.Clip(slices.Compact(v.destinations))
	for _, d := range v.destinations {
		if n := len(v.DestinationHosts); n == 0 || v.DestinationHosts[n-1] != d.host {
			v.DestinationHosts = append(v.DestinationHosts, d.host)
		}
	}
	for _, g := range v.Spec.Gateways {
		v.Gateways = append(v.Gateways, names.Gateway(g, k.Namespace))
	}
	if len(v.Gateways) == 0 {
		v.Gateways = []string{"mesh"}
	}
	slices.Sort(v.Gateways)
	v.Gateways = slices.Compact(v.Gateways)
	return v
}

// VirtualServicesOfGateway returns the VirtualServices bound to a Gateway, "ns/name", that have a host or a pattern
// covering it, by precedence.
func (x *Index) VirtualServicesOfGateway(name, host, proxyNamespace string) []*VirtualService {
	var all []*VirtualService
	var partial func(tail string) bool
	if !none(x, x.partialGatewayHosts, func(e gatewayHost) int { return strings.Compare(e.gateway, name) }) {
		partial = func(tail string) bool {
			_, ok := x.partialGatewayHosts.First(func(e gatewayHost) int {
				return cmp.Or(strings.Compare(e.gateway, name), strings.Compare(e.host[1:], tail))
			})
			return ok
		}
	}
	for pattern := range patterns(host, partial) {
		all = append(all, x.VirtualServicesOfGatewayHost(name, pattern, proxyNamespace)...)
	}
	if len(all) > 1 {
		slices.SortFunc(all, compareByPrecedence)
		all = slices.Compact(all)
	}
	return all
}

// VirtualServicesOfGatewayHost returns the VirtualServices bound to a Gateway, "ns/name", that name a host as it is
// written, by precedence.
func (x *Index) VirtualServicesOfGatewayHost(name, host, proxyNamespace string) []*VirtualService {
	var all []*VirtualService
	for e := range x.gatewayHosts.Where(func(e gatewayHost) int {
		return cmp.Or(strings.Compare(e.gateway, name), strings.Compare(e.host, host))
	}) {
		if x.exportedTo(e, proxyNamespace) {
			all = append(all, e.VirtualService)
		}
	}
	return all
}

// GatewayHasHost reports whether a VirtualService that is bound to a Gateway, "ns/name", has a host, as it is written.
func (x *Index) GatewayHasHost(gateway, host string, v *VirtualService) bool {
	_, ok := x.gatewayHosts.Get(gatewayHost{gateway, host, v})
	return ok
}

// HostsOfGateway returns the hosts of VirtualServices bound to a Gateway, "ns/name". A host of several VirtualServices
// is repeated.
func (x *Index) HostsOfGateway(name, proxyNamespace string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for e := range x.gatewayHosts.Where(func(e gatewayHost) int { return strings.Compare(e.gateway, name) }) {
			if x.exportedTo(e, proxyNamespace) && !yield(e.host) {
				return
			}
		}
	}
}

func (x *Index) exportedTo(e gatewayHost, proxyNamespace string) bool {
	return exported(e.Spec.ExportTo, x.Mesh.GetDefaultVirtualServiceExportTo(), e.Namespace, proxyNamespace)
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

// RulesWithSelector returns the DestinationRules of a namespace that have a workload selector, by precedence.
func (x *Index) RulesWithSelector(ns string) iter.Seq[*kinds.Object] {
	return x.rulesWithSelector.Where(func(o *kinds.Object) int { return strings.Compare(o.Namespace, ns) })
}

// CandidateServices returns, by precedence, the services that a workload with those labels and addresses may serve. The
// list may contain too many services, never too few. An unknown workload is found by its addresses alone.
func (x *Index) CandidateServices(namespace string, labels map[string]string, addresses []string, known bool) iter.Seq[*registry.Service] {
	var found []*registry.Service
	if !known {
		x.endpointServicesOnce.Do(x.indexEndpoints)
		for _, a := range addresses {
			found = append(found, x.endpointServices[a]...)
		}
		return byPrecedence(found)
	}
	for k, v := range labels {
		for s := range x.selectors.Where(func(s selector) int {
			if c := strings.Compare(s.service.Namespace, namespace); c != 0 {
				return c
			}
			if c := strings.Compare(s.key, k); c != 0 {
				return c
			}
			return strings.Compare(s.value, v)
		}) {
			found = append(found, s.service)
		}
	}
	for _, a := range addresses {
		for l := range x.locations.Select(withAddress(a), func(l location) bool { return servedByAddress(l.service) }) {
			found = append(found, l.service)
		}
	}
	return byPrecedence(found)
}

func byPrecedence(found []*registry.Service) iter.Seq[*registry.Service] {
	slices.SortFunc(found, snapshot.ByServicePrecedence)
	return slices.Values(slices.Compact(found))
}

// indexEndpoints indexes the services by the addresses of their endpoints.
func (x *Index) indexEndpoints() {
	x.endpointServices = map[string][]*registry.Service{}
	for s := range x.EachService {
		for _, e := range x.Endpoints(s.Key()).List {
			if all := x.endpointServices[e.Address]; len(all) == 0 || all[len(all)-1] != s {
				x.endpointServices[e.Address] = append(all, s)
			}
		}
	}
}

// ServicesByPort returns the services with a port of that number for which match reports true. A service may be
// repeated.
func (x *Index) ServicesByPort(number uint32, match func(*registry.Service) bool) iter.Seq[*registry.Service] {
	return func(yield func(*registry.Service) bool) {
		for _, ports := range []frozen.Table[port]{x.ports, x.aliasPorts} {
			of := func(p port) int { return cmp.Compare(p.Number, number) }
			for p := range ports.Select(of, func(p port) bool { return match(p.service) }) {
				if !yield(p.service) {
					return
				}
			}
		}
	}
}

// HasHost reports whether any service or VirtualService has a host.
func (x *Index) HasHost(host string) bool {
	for range x.ServicesByHost(host) {
		return true
	}
	_, ok := x.meshHosts.First(withName(host))
	return ok
}

// IsAlias reports whether a service of a host is another name of some host.
func (x *Index) IsAlias(host string) bool {
	for s := range x.ServicesByHost(host) {
		if s.Resolution == registry.Alias {
			return true
		}
	}
	return false
}

// HostByLabel returns the first host of a service or VirtualService whose first label is label, and reports whether
// there are more.
func (x *Index) HostByLabel(label string) (host string, more bool) {
	if x.observer != nil {
		return "", true
	}
	add := func(h string) bool {
		more = host != "" && h != host
		host = cmp.Or(host, h)
		return !more
	}
	if x.HasHost(label) {
		add(label)
	}
	prefix := label + "."
	for s := range x.ServicesByHostPrefix(prefix) {
		if !add(s.Host) {
			return host, true
		}
	}
	for l := range x.meshHosts.Where(func(l link) int { return frozen.ComparePrefix(l.name, prefix) }) {
		if !add(l.name) {
			return host, true
		}
	}
	return host, more
}

// HostsAtAddress calls visit for the hosts of the services that have an address in some cluster.
func (x *Index) HostsAtAddress(address string, visit func(host string)) {
	for l := range x.locations.Select(withAddress(address), func(l location) bool { return hasAddress(l.service, address) }) {
		visit(l.service.Host)
	}
}

// MaxAliasDepth is the longest chain of aliases that is followed. A cycle has no end.
const MaxAliasDepth = 8

// Aliases calls visit once for each service that is an alias of a host, directly or through other aliases.
func (x *Index) Aliases(host string, visit func(*registry.Service)) {
	if x.aliases.Empty() {
		return
	}
	seen := map[*registry.Service]bool{}
	var follow func(host string, depth int)
	follow = func(host string, depth int) {
		for a := range x.aliases.Where(func(a alias) int { return strings.Compare(a.target, host) }) {
			if !seen[a.service] && depth < MaxAliasDepth {
				seen[a.service] = true
				visit(a.service)
				follow(a.service.Host, depth+1)
			}
		}
	}
	follow(host, 0)
}

// Objects is Snapshot.Objects, for kinds whose changes a Diff lists.
func (x *Index) Objects(kind *kinds.Kind, ns string) []*kinds.Object {
	x.mustBeRead(kind)
	return x.Snapshot.Objects(kind, ns)
}

// AllObjects is Snapshot.AllObjects, for kinds whose changes a Diff lists.
func (x *Index) AllObjects(kind *kinds.Kind) []*kinds.Object {
	x.mustBeRead(kind)
	return x.Snapshot.AllObjects(kind)
}

// Object is Snapshot.Object, for kinds whose changes a Diff lists.
func (x *Index) Object(k kinds.Key) *kinds.Object {
	x.mustBeRead(k.Kind)
	return x.Snapshot.Object(k)
}

// mustBeRead panics for a kind whose changes a Diff does not list: proxies would keep outdated configuration.
func (x *Index) mustBeRead(kind *kinds.Kind) {
	if x.Reach(kind) == snapshot.Unread {
		panic("scope: " + kind.Name + " is read, and the Snapshot does not compare its objects")
	}
}

// HasNodeLocal reports whether any service is called only on the caller's own node.
func (x *Index) HasNodeLocal() bool {
	x.observeCounts()
	return x.nodeLocal > 0
}

// HasTrafficDistribution reports whether any service prefers endpoints close to the caller.
func (x *Index) HasTrafficDistribution() bool {
	x.observeCounts()
	return x.trafficDistribution > 0
}

// WithSourceLabels returns the VirtualServices that match on source labels.
func (x *Index) WithSourceLabels() iter.Seq[*VirtualService] { return x.withSourceLabels.All }

// SourceLabels calls yield for each match of a VirtualService, with its source labels. The order is fixed.
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
func ExcludedMatches(v *networkingv1.VirtualService, labels map[string]string) string {
	var b []byte
	i := 0
	for _, want := range SourceLabels(v) {
		if !kinds.Selects(want, labels) {
			b = strconv.AppendInt(b, int64(i), 10)
			b = append(b, ' ')
		}
		i++
	}
	return string(b)
}
