package scope

import (
	"cmp"
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

// Index orders one Snapshot's services and routing objects by what they are looked up by. Safe for concurrent use.
type Index struct {
	*snapshot.Snapshot
	rules    map[string]*ruleTable // by the DestinationRule's namespace
	mesh     []*VirtualService     // those bound to sidecars, by precedence
	gateways map[string][]*VirtualService
	sourced  []*VirtualService // those with a match on source labels

	nodeLocal, distributed bool
	clusterLocal           []locality

	// whole are VirtualServices with the routes of those that they delegate to, by the objects that they are made of.
	whole map[frozen.List[*kinds.Object]]*kinds.Object

	mu     sync.Mutex
	scopes map[scopeKey]*Scope
}

// VirtualService is one with its hosts fully qualified.
type VirtualService struct {
	*kinds.Object
	Spec  *networkingv1.VirtualService
	Hosts []string
}

type ruleTable struct {
	exact map[string][]*kinds.Object // by qualified host, by precedence
	wild  []string                   // hosts of exact that are patterns, the most specific first
}

// NewIndex makes the index of a Snapshot. last is that of an earlier one, or nil: objects that are made of several stay the same pointer while those are the same.
func NewIndex(s *snapshot.Snapshot, last *Index) *Index {
	x := &Index{Snapshot: s, rules: map[string]*ruleTable{}, gateways: map[string][]*VirtualService{}, scopes: map[scopeKey]*Scope{}, whole: map[frozen.List[*kinds.Object]]*kinds.Object{}}
	x.nodeLocal = slices.ContainsFunc(s.Services(), func(svc *registry.Service) bool { return svc.NodeLocal })
	x.distributed = slices.ContainsFunc(s.Services(), func(svc *registry.Service) bool { return svc.TrafficDist != "" })
	x.clusterLocal = localities(s)
	for _, o := range s.AllObjects(kinds.DestinationRule) {
		x.addRule(o, o.Spec.(*networkingv1.DestinationRule))
	}
	for _, t := range x.rules {
		slices.SortFunc(t.wild, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	}
	for _, o := range s.AllObjects(kinds.VirtualService) {
		if spec := o.Spec.(*networkingv1.VirtualService); len(spec.Hosts) > 0 { // without hosts it is one that others delegate to
			o = x.delegate(o, last)
			x.addVirtualService(o, o.Spec.(*networkingv1.VirtualService))
		}
	}
	return x
}

func (x *Index) addRule(o *kinds.Object, spec *networkingv1.DestinationRule) {
	t := x.rules[o.Namespace]
	if t == nil {
		t = &ruleTable{exact: map[string][]*kinds.Object{}}
		x.rules[o.Namespace] = t
	}
	host := names.FQDN(spec.Host, o.Namespace, x.Domain)
	if strings.HasPrefix(host, "*") && t.exact[host] == nil {
		t.wild = append(t.wild, host)
	}
	t.exact[host] = append(t.exact[host], o)
}

// delegate gives a VirtualService with the routes that it leaves to others.
func (x *Index) delegate(root *kinds.Object, last *Index) *kinds.Object {
	parts := []*kinds.Object{root}
	whole := Delegated(root, x.Domain, func(ns, name string) *kinds.Object {
		o := x.Object(kinds.Key{Kind: kinds.VirtualService, Namespace: ns, Name: name})
		if o != nil {
			parts = append(parts, o)
		}
		return o
	})
	if whole == root {
		return root
	}
	k := frozen.Of(parts...)
	if last != nil && last.whole[k] != nil {
		whole = last.whole[k]
	}
	x.whole[k] = whole
	return whole
}

func (x *Index) addVirtualService(o *kinds.Object, spec *networkingv1.VirtualService) {
	v := &VirtualService{Object: o, Spec: spec}
	for _, h := range spec.Hosts {
		v.Hosts = append(v.Hosts, names.FQDN(h, o.Namespace, x.Domain))
	}
	for _, labels := range Sources(spec) {
		if len(labels) > 0 {
			x.sourced = append(x.sourced, v)
			break
		}
	}
	gateways := spec.Gateways
	if len(gateways) == 0 {
		gateways = []string{"mesh"}
	}
	for _, g := range gateways {
		if g = names.Gateway(g, o.Namespace); g == "mesh" {
			x.mesh = append(x.mesh, v)
		} else {
			x.gateways[g] = append(x.gateways[g], v)
		}
	}
}

// OfGateway gives the VirtualServices bound to a Gateway, "ns/name", by precedence.
func (x *Index) OfGateway(name, proxyNamespace string) []*VirtualService {
	return slices.DeleteFunc(slices.Clone(x.gateways[name]), func(v *VirtualService) bool {
		return !exported(v.Spec.ExportTo, x.Mesh.GetDefaultVirtualServiceExportTo(), v.Namespace, proxyNamespace)
	})
}

// Rules gives the DestinationRules in force when proxies of a namespace call a service: those of the client's namespace come first, then of the
// service's, then of the root namespace; in each the most specific host. Several for one host in one namespace are merged by whoever reads them,
// in this order. Rules with a workload selector count where they are among selected.
func (x *Index) Rules(client string, s *registry.Service, selected frozen.List[*kinds.Object]) frozen.List[*kinds.Object] {
	places := []string{client, s.Namespace, x.RootNamespace()}
	if client == x.RootNamespace() {
		places = places[1:] // the root namespace's own rules yield to the service's
	}
	for _, ns := range slices.Compact(places) {
		if l := x.rulesIn(ns, client, s.Host, selected); !l.Empty() {
			return l
		}
	}
	return frozen.List[*kinds.Object]{}
}

func (x *Index) rulesIn(ns, client, host string, selected frozen.List[*kinds.Object]) frozen.List[*kinds.Object] {
	t := x.rules[ns]
	if t == nil {
		return frozen.List[*kinds.Object]{}
	}
	visible := func(host string) []*kinds.Object {
		var own, all []*kinds.Object
		for _, o := range t.exact[host] {
			spec := o.Spec.(*networkingv1.DestinationRule)
			if !exported(spec.ExportTo, x.Mesh.GetDefaultDestinationRuleExportTo(), ns, client) {
				continue
			}
			switch {
			case len(spec.GetWorkloadSelector().GetMatchLabels()) == 0:
				all = append(all, o)
			case ns == client && slices.Contains(slices.Collect(selected.All), o):
				own = append(own, o)
			}
		}
		if len(own) > 0 { // a rule for this workload is not merged with those for everybody
			return own[:1]
		}
		return all
	}
	if l := visible(host); len(l) > 0 {
		return frozen.Of(l...)
	}
	for _, w := range t.wild {
		if w != host && names.Covers(w, host) {
			if l := visible(w); len(l) > 0 {
				return frozen.Of(l...)
			}
		}
	}
	return frozen.List[*kinds.Object]{}
}

// NodeLocal tells that some service is called on the caller's own node alone.
func (x *Index) NodeLocal() bool { return x.nodeLocal }

// Distributed tells that some service prefers endpoints that are close to the caller.
func (x *Index) Distributed() bool { return x.distributed }

// Sourced gives the VirtualServices that have a match on source labels.
func (x *Index) Sourced() []*VirtualService { return x.sourced }

// Sources calls yield for the source labels of each match of a VirtualService, in one fixed order, with the match itself.
func Sources(v *networkingv1.VirtualService) func(yield func(match any, labels map[string]string) bool) {
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

// Foreign says which matches of a VirtualService do not hold for a workload with those labels: their ordinals among Sources, as a string that can be part of a key.
func Foreign(v *networkingv1.VirtualService, labels map[string]string) string {
	var b []byte
	i := 0
	for _, want := range Sources(v) {
		if !Selects(want, labels) {
			b = strconv.AppendInt(b, int64(i), 10)
			b = append(b, ' ')
		}
		i++
	}
	return string(b)
}

// At gives the index of a later Snapshot in which nothing but endpoints and workloads changed. Scopes that were worked out stay.
func (x *Index) At(s *snapshot.Snapshot) *Index {
	next := &Index{Snapshot: s, rules: x.rules, mesh: x.mesh, gateways: x.gateways, sourced: x.sourced, whole: x.whole, nodeLocal: x.nodeLocal, distributed: x.distributed, clusterLocal: x.clusterLocal, scopes: map[scopeKey]*Scope{}}
	x.mu.Lock()
	defer x.mu.Unlock()
	for k, sc := range x.scopes {
		later := *sc
		later.Index = next
		next.scopes[k] = &later
	}
	return next
}
