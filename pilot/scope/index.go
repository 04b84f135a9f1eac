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

// Index orders one Snapshot's services and routing objects by what they are looked up by. Immutable but for what it remembers; safe for concurrent use.
type Index struct {
	*snapshot.Snapshot
	tables
	Dirty Dirty // since the Index that it was made from

	clusterLocal []locality

	mu     sync.Mutex
	scopes map[scopeKey]*Scope

	long longRules

	listing sync.Once
	called  map[string][]*registry.Service // by the address of an endpoint; made when somebody asks
}

// VirtualService is one with the routes of those that it delegates to, and with names fully qualified.
type VirtualService struct {
	*kinds.Object
	Spec             *networkingv1.VirtualService
	Hosts            []string
	DestinationHosts []string // the hosts that it sends traffic to, each once, sorted
	Gateways         []string // that it is bound to: "ns/name", or "mesh" for sidecars; each once

	reached   []destination // by Reached, with their ports
	delegates []string      // "ns/name" of those that it delegates to, whether they exist or not
}

// destination is a port of a host that traffic is sent to; 0 where the route does not say.
type destination struct {
	host string
	port uint32
}

func compareDestinations(a, b destination) int {
	return cmp.Or(strings.Compare(a.host, b.host), cmp.Compare(a.port, b.port))
}

// ports returns those of a host that it sends traffic to, 0 among them where a route does not say.
func (v *VirtualService) ports(host string) []destination {
	i, _ := slices.BinarySearchFunc(v.reached, destination{host: host}, compareDestinations)
	n := i
	for n < len(v.reached) && v.reached[n].host == host {
		n++
	}
	return v.reached[i:n]
}

// NewIndex makes the index of a Snapshot. last is that of an earlier one, or nil: if it is of the Snapshot before, the work is as much as what changed.
func NewIndex(s *snapshot.Snapshot, last *Index) *Index {
	x := &Index{Snapshot: s, scopes: map[scopeKey]*Scope{}}
	if last == nil || last.Revision+1 != s.Revision {
		x.tables, x.clusterLocal = newTables(), localities(s)
		x.apply(everything(s))
		x.Dirty = Dirty{All: true, Reassign: Reassign{All: true}}
		return x
	}
	x.tables, x.clusterLocal = last.tables, last.clusterLocal
	if s.Diff.Global {
		x.clusterLocal = localities(s)
	}
	x.Dirty = x.changes(last, x.apply(&s.Diff))
	return x
}

// everything gives the Diff that makes a Snapshot of nothing.
func everything(s *snapshot.Snapshot) *snapshot.Diff {
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

// virtualChange is a VirtualService, as translations see it, as it was and as it is.
type virtualChange struct{ was, is *VirtualService }

// apply brings the tables up to date and gives the VirtualServices that are others.
func (x *Index) apply(d *snapshot.Diff) []virtualChange {
	if len(d.Services)+len(d.Configs)+len(d.OldEndpoints) == 0 {
		return nil
	}
	t, e := &x.tables, &frozen.Edit{}
	had := make(map[registry.ServiceKey]*snapshot.Endpoints, len(d.OldEndpoints))
	for _, b := range d.OldEndpoints {
		had[b.ServiceKey] = b.Endpoints
	}
	endpoints := func(s *registry.Service) *snapshot.Endpoints {
		if s != nil {
			if eps := had[s.Key()]; eps != nil {
				return eps
			}
			return x.Endpoints(s.Key())
		}
		return nil
	}
	for _, c := range d.Services {
		t.service(e, c.Old, endpoints(c.Old), false)
		if c.New != nil {
			t.service(e, c.New, x.Endpoints(c.New.Key()), true)
			delete(had, c.New.Key())
		}
	}
	for k, eps := range had { // of services that are the same
		if s := x.Service(k); s != nil && locatedByEndpoints(s) {
			t.service(e, s, eps, false)
			t.service(e, s, x.Endpoints(k), true)
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
				t.rule(e, x.rule(c.Old), false)
			}
			if c.New != nil {
				t.rule(e, x.rule(c.New), true)
			}
		case kinds.VirtualService:
			roots[o.Key] = struct{}{}
			for r := range t.roots.Where(delegating(o.Namespace + "/" + o.Name)) {
				roots[r.root] = struct{}{}
			}
		}
	}
	var changed []virtualChange
	for k := range roots {
		c := virtualChange{is: x.virtualService(k)}
		c.was, _ = t.virtual.Get(&VirtualService{Object: &kinds.Object{Key: k}})
		if c.was != nil {
			t.virtualService(e, c.was, false)
		}
		if c.is != nil {
			t.virtualService(e, c.is, true)
		}
		changed = append(changed, c)
	}
	e.Done()
	return changed
}

func delegating(to string) func(delegation) int {
	return func(d delegation) int { return strings.Compare(d.delegate, to) }
}

func (x *Index) rule(o *kinds.Object) rule {
	return rule{names.FQDN(o.Spec.(*networkingv1.DestinationRule).Host, o.Namespace, x.Domain), o}
}

// virtualService gives one as the Snapshot has it: nil where it has none, or one without hosts, to which others delegate.
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
		v.reached = append(v.reached, destination{names.FQDN(h, k.Namespace, x.Domain), port})
	}
	slices.SortFunc(v.reached, compareDestinations)
	v.reached = slices.Clip(slices.Compact(v.reached))
	for _, d := range v.reached {
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

// VirtualServicesOfGateway gives the VirtualServices bound to a Gateway, "ns/name", that name a host or a pattern that covers it, by precedence.
func (x *Index) VirtualServicesOfGateway(name, host, proxyNamespace string) []*VirtualService {
	var all []*VirtualService
	var partial func(tail string) bool
	if _, ok := x.partialEntries.First(func(e entry) int { return strings.Compare(e.gateway, name) }); ok {
		partial = func(tail string) bool {
			_, ok := x.partialEntries.First(func(e entry) int { return cmp.Or(strings.Compare(e.gateway, name), strings.Compare(e.host[1:], tail)) })
			return ok
		}
	}
	for pattern := range patterns(host, partial) {
		for e := range x.entries.Where(func(e entry) int { return cmp.Or(strings.Compare(e.gateway, name), strings.Compare(e.host, pattern)) }) {
			if x.admitted(e, proxyNamespace) {
				all = append(all, e.VirtualService)
			}
		}
	}
	if len(all) > 1 {
		slices.SortFunc(all, compareMesh)
		all = slices.Compact(all)
	}
	return all
}

// GatewayHasHost reports whether a VirtualService that is bound to a Gateway, "ns/name", has a host, as it is written.
func (x *Index) GatewayHasHost(gateway, host string, v *VirtualService) bool {
	_, ok := x.entries.Get(entry{gateway, host, v})
	return ok
}

// HostsOfGateway yields the hosts of VirtualServices bound to a Gateway, "ns/name": a host that several have as often.
func (x *Index) HostsOfGateway(name, proxyNamespace string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for e := range x.entries.Where(func(e entry) int { return strings.Compare(e.gateway, name) }) {
			if x.admitted(e, proxyNamespace) && !yield(e.host) {
				return
			}
		}
	}
}

func (x *Index) admitted(e entry, proxyNamespace string) bool {
	return exported(e.Spec.ExportTo, x.Mesh.GetDefaultVirtualServiceExportTo(), e.Namespace, proxyNamespace)
}

// GatewayVirtualServicesTo gives the VirtualServices bound to Gateways that send traffic to a host.
func (x *Index) GatewayVirtualServicesTo(host string) iter.Seq[*VirtualService] {
	return func(yield func(*VirtualService) bool) {
		for l := range x.behind.Where(linked(host)) {
			if !yield(l.VirtualService) {
				return
			}
		}
	}
}

// RulesWithSelector gives the DestinationRules of a namespace that have a workload selector, by precedence.
func (x *Index) RulesWithSelector(ns string) iter.Seq[*kinds.Object] {
	return x.selecting.Where(func(o *kinds.Object) int { return strings.Compare(o.Namespace, ns) })
}

// CandidateServices gives, by precedence, the services that a workload of those labels and addresses may serve: all that do are among them. Of one that is not known,
// its addresses alone tell.
func (x *Index) CandidateServices(namespace string, labels map[string]string, addresses []string, known bool) iter.Seq[*registry.Service] {
	var found []*registry.Service
	if !known {
		x.listing.Do(x.list)
		for _, a := range addresses {
			found = append(found, x.called[a]...)
		}
		return inOrder(found)
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
		for l := range x.located.Where(at(a)) {
			found = append(found, l.service)
		}
	}
	return inOrder(found)
}

func inOrder(found []*registry.Service) iter.Seq[*registry.Service] {
	slices.SortFunc(found, snapshot.ByServicePrecedence)
	return slices.Values(slices.Compact(found))
}

// list finds the services by the addresses of their endpoints.
func (x *Index) list() {
	x.called = map[string][]*registry.Service{}
	for s := range x.EachService {
		for _, e := range x.Endpoints(s.Key()).List {
			if all := x.called[e.Address]; len(all) == 0 || all[len(all)-1] != s {
				x.called[e.Address] = append(all, s)
			}
		}
	}
}

// ServicesByPort returns the services with a port of that number: one may come several times.
func (x *Index) ServicesByPort(number uint32) iter.Seq[*registry.Service] {
	return func(yield func(*registry.Service) bool) {
		for _, ports := range []frozen.Table[port]{x.ports, x.aliased} {
			for p := range ports.Where(func(p port) int { return cmp.Compare(p.Number, number) }) {
				if !yield(p.service) {
					return
				}
			}
		}
	}
}

// HasHost tells whether some service or VirtualService has a host.
func (x *Index) HasHost(host string) bool {
	for range x.ServicesByHost(host) {
		return true
	}
	_, ok := x.bound.First(linked(host))
	return ok
}

// HostByLabel gives the first host of a service or VirtualService that begins with a label, which is all up to a dot, and tells whether there are others.
func (x *Index) HostByLabel(label string) (host string, more bool) {
	add := func(h string) bool {
		more = host != "" && h != host
		host = cmp.Or(host, h)
		return !more
	}
	if x.HasHost(label) {
		add(label)
	}
	under := label + "."
	for s := range x.ServicesByHostPrefix(under) {
		if !add(s.Host) {
			return host, true
		}
	}
	for l := range x.bound.Where(func(l link) int { return frozen.ComparePrefix(l.name, under) }) {
		if !add(l.name) {
			return host, true
		}
	}
	return host, more
}

// HostsAtAddress calls visit for the hosts of the services that are at an address; others may be among them.
func (x *Index) HostsAtAddress(address string, visit func(host string)) {
	for l := range x.located.Where(at(address)) {
		visit(l.service.Host)
	}
}

// LongestAlias is how many names in a row may stand for each other: a circle has no end.
const MaxAliasDepth = 8

// Aliases calls visit once for each service that is another name of a host, or of another name of it.
func (x *Index) Aliases(host string, visit func(*registry.Service)) {
	if x.aliases.Len() == 0 {
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

// Objects is the Snapshot's, of the kinds of which it tells what changed.
func (x *Index) Objects(kind *kinds.Kind, ns string) []*kinds.Object {
	mustBeTranslated(kind)
	return x.Snapshot.Objects(kind, ns)
}

// AllObjects is the Snapshot's, of the kinds of which it tells what changed.
func (x *Index) AllObjects(kind *kinds.Kind) []*kinds.Object {
	mustBeTranslated(kind)
	return x.Snapshot.AllObjects(kind)
}

// Object is the Snapshot's, of the kinds of which it tells what changed.
func (x *Index) Object(k kinds.Key) *kinds.Object {
	mustBeTranslated(k.Kind)
	return x.Snapshot.Object(k)
}

// mustBeTranslated refuses to read what snapshots do not watch: proxies would keep what they were sent of it.
func mustBeTranslated(kind *kinds.Kind) {
	if !snapshot.Translated(kind) {
		panic("scope: " + kind.Name + " is read, and snapshot.Translated does not name it")
	}
}

// HasNodeLocal tells that some service is called on the caller's own node alone.
func (x *Index) HasNodeLocal() bool { return x.nodeLocal > 0 }

// HasTrafficDistribution tells that some service prefers endpoints that are close to the caller.
func (x *Index) HasTrafficDistribution() bool { return x.distributed > 0 }

// WithSourceLabels gives the VirtualServices that have a match on source labels.
func (x *Index) WithSourceLabels() iter.Seq[*VirtualService] { return x.sourced.All }

// SourceLabels calls yield for the source labels of each match of a VirtualService, in one fixed order, with the match itself.
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

// ExcludedMatches says which matches of a VirtualService do not hold for a workload with those labels: their ordinals among Sources, as a string that can be part of a key.
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
