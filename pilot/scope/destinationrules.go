package scope

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// destinationRuleTables hold DestinationRules.
type destinationRuleTables struct {
	destinationRules        frozen.Table[destinationRule] // ordered by namespace, host and precedence
	partialDestinationRules frozen.Table[destinationRule] // rules with a partial host
	rulesWithSelector       frozen.Table[*kinds.Object]   // rules with a workload selector, ordered by namespace and precedence
	credentialRules         frozen.Table[credentialRule]  // rules that name credentials, ordered by the name of the resource

	placing        int            // number of rules that prefer endpoints by location
	passing        int            // number of rules that pass connections through to the address that was called
	priorityLabels map[string]int // number of rules by the label by which they sort endpoints; never changed in place
}

func (t *destinationRuleTables) all() []declared {
	return []declared{
		declare("destinationRules", &t.destinationRules, compareDestinationRules),
		declare("partialDestinationRules", &t.partialDestinationRules, compareDestinationRules),
		declare("rulesWithSelector", &t.rulesWithSelector, compareByNamespace),
		declare("credentialRules", &t.credentialRules, compareCredentialRules),
	}
}

// destinationRule is a DestinationRule with its qualified host.
type destinationRule struct {
	host string
	*kinds.Object
}

func (r destinationRule) String() string { return r.host + " of " + r.Key.String() }

func compareDestinationRules(a, b destinationRule) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	if c := strings.Compare(a.host, b.host); c != 0 {
		return c
	}
	return snapshot.ByPrecedence(a.Object, b.Object)
}

func compareByNamespace(a, b *kinds.Object) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), snapshot.ByPrecedence(a, b))
}

// credentialRule relates an SDS resource to a DestinationRule that names it.
type credentialRule struct {
	resource string
	*kinds.Object
}

func (r credentialRule) String() string { return r.resource + " of " + r.Key.String() }

func compareCredentialRules(a, b credentialRule) int {
	if c := strings.Compare(a.resource, b.resource); c != 0 {
		return c
	}
	return snapshot.ByPrecedence(a.Object, b.Object)
}

func (x *Index) destinationRule(o *kinds.Object) destinationRule {
	return destinationRule{names.FQDN(o.Spec.(*networkingv1.DestinationRule).Host, o.Namespace, x.Domain), o}
}

// setDestinationRule adds a DestinationRule to the tables, or removes it.
func (t *destinationRuleTables) setDestinationRule(e *frozen.Edit, r destinationRule, add bool) {
	putOrDelete(&t.destinationRules, e, add, r)
	if IsPartial(r.host) {
		putOrDelete(&t.partialDestinationRules, e, add, r)
	}
	if r.Spec.(*networkingv1.DestinationRule).WorkloadSelector != nil {
		putOrDelete(&t.rulesWithSelector, e, add, r.Object)
	}
	for _, c := range credentials.References(r.Object) {
		putOrDelete(&t.credentialRules, e, add, credentialRule{c.Resource, r.Object})
	}
	places, labels := traffic.Places(r.Spec.(*networkingv1.DestinationRule))
	n := -1
	if add {
		n = 1
	}
	if places {
		t.placing += n
	}
	if traffic.PassesThrough(r.Spec.(*networkingv1.DestinationRule)) {
		t.passing += n
	}
	if len(labels) > 0 {
		t.priorityLabels = maps.Clone(t.priorityLabels)
		if t.priorityLabels == nil {
			t.priorityLabels = map[string]int{}
		}
	}
	for _, l := range labels {
		if t.priorityLabels[l] += n; t.priorityLabels[l] == 0 {
			delete(t.priorityLabels, l)
		}
	}
}

// destinationRuleInvalidation returns the invalidation rules for changed DestinationRules.
func destinationRuleInvalidation() []InvalidationRule {
	return []InvalidationRule{
		{Name: "destination rules", start: func(b *dirtyBuilder) {
			for r := range changedRows(b.last.destinationRules, b.index.destinationRules) {
				b.eachCovered(r.host, b.addChangedHost)
			}
		}},
		{Name: "credentials of rules", start: func(b *dirtyBuilder) {
			for r := range changedRows(b.last.credentialRules, b.index.credentialRules) {
				b.addCredentials(credentials.Reference{Resource: r.resource}.Names()...)
			}
		}},
		// A workload reads the rules of the services that it serves. Services found by its addresses may be in other
		// namespaces.
		{Name: "rules of services found by address", start: func(b *dirtyBuilder) {
			for r := range changedRows(b.last.destinationRules, b.index.destinationRules) {
				b.eachCovered(r.host, func(host string) {
					for svc := range b.index.ServicesByHost(host) {
						b.dirty.Reassign.All = b.dirty.Reassign.All || servedByAddress(svc)
					}
				})
			}
		}},
	}
}

// DestinationRuleNames reports whether a DestinationRule names an SDS resource.
func (x *Index) DestinationRuleNames(resource string) bool {
	_, ok := x.credentialRules.First(func(r credentialRule) int { return strings.Compare(r.resource, resource) })
	return ok
}

// DestinationRulesWithSelector returns the DestinationRules of a namespace that have a workload selector, by
// precedence.
func (x *Index) DestinationRulesWithSelector(ns string) iter.Seq[*kinds.Object] {
	return x.rulesWithSelector.Where(func(o *kinds.Object) int { return strings.Compare(o.Namespace, ns) })
}

// DestinationRules returns the DestinationRules that apply when proxies of a namespace call a service. The first of
// these namespaces with a rule for it is used: the client's, the service's, the root namespace. Within it the most
// specific host wins. If there are several rules for that host, the reader merges them in this order. A rule with a
// workload selector applies if it is in selected.
func (x *Index) DestinationRules(client string, s *registry.Service, selected frozen.List[*kinds.Object]) frozen.List[*kinds.Object] {
	k := rulesKey{client, s, selected}
	if l, ok := x.rulesCache.get(k); ok {
		return l
	}
	f := rulesFinder{index: x, client: client, selected: selected}
	l := frozen.ListOf(f.find(s)...)
	if f.examined > 8 {
		x.rulesCache.put(k, l)
	}
	return l
}

// rulesCache caches results that were found among many rules, because each subset of a service looks them up again.
// Safe for concurrent use.
type rulesCache struct {
	mu    sync.RWMutex
	rules map[rulesKey]frozen.List[*kinds.Object]
}

type rulesKey struct {
	client   string
	service  *registry.Service
	selected frozen.List[*kinds.Object]
}

func (r *rulesCache) get(k rulesKey) (l frozen.List[*kinds.Object], ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.rules) > 0 {
		l, ok = r.rules[k]
	}
	return l, ok
}

func (r *rulesCache) put(k rulesKey, l frozen.List[*kinds.Object]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lists.Put(&r.rules, k, l)
}

// rulesFinder finds the DestinationRules of one service.
type rulesFinder struct {
	index       *Index
	client      string
	selected    frozen.List[*kinds.Object]
	selectedSet map[*kinds.Object]struct{} // set of the elements of selected, made on first use
	examined    int
}

func (f *rulesFinder) find(s *registry.Service) []*kinds.Object {
	root := f.index.RootNamespace()
	namespaces := []string{f.client, s.Namespace, root}
	if f.client == root {
		namespaces = namespaces[1:] // the rules of the root namespace come after those of the service's
	}
	certified := f.certified(s.Host)
	for _, ns := range slices.Compact(namespaces) {
		if l := f.inNamespace(ns, s.Host); len(l) > 0 {
			return append(certified, l...)
		}
	}
	return certified
}

// certified returns the selected rules that set only the client's certificate.
func (f *rulesFinder) certified(host string) (list []*kinds.Object) {
	for o := range f.selected.All {
		if isCertified(o) && f.index.destinationRule(o).host == host {
			list = append(list, o)
		}
	}
	return list
}

func isCertified(o *kinds.Object) bool {
	e, ok := o.Extra.(*kinds.RuleExtra)
	return ok && e.ClientCertificate != ""
}

// inNamespace returns the rules of a namespace that cover the host most specifically.
func (f *rulesFinder) inNamespace(ns, host string) []*kinds.Object {
	if l := f.visible(ns, host); len(l) > 0 {
		return l
	}
	ofNamespace := func(r destinationRule) int { return strings.Compare(r.Namespace, ns) }
	if none(f.index, f.index.destinationRules, func(r destinationRule) int {
		return cmp.Or(ofNamespace(r), frozen.ComparePrefix(r.host, "*"))
	}) {
		return nil
	}
	partial := func(tail string) bool {
		_, ok := f.index.partialDestinationRules.First(func(r destinationRule) int {
			return cmp.Or(ofNamespace(r), strings.Compare(r.host[1:], tail))
		})
		return ok
	}
	if none(f.index, f.index.partialDestinationRules, ofNamespace) {
		partial = nil
	}
	for pattern := range patterns(host, partial) {
		if pattern != host {
			if l := f.visible(ns, pattern); len(l) > 0 {
				return l
			}
		}
	}
	return nil
}

// visible returns the rules of a namespace whose host is exactly this text.
func (f *rulesFinder) visible(ns, host string) []*kinds.Object {
	var all []*kinds.Object
	for r := range f.index.destinationRules.Where(func(r destinationRule) int {
		return cmp.Or(strings.Compare(r.Namespace, ns), strings.Compare(r.host, host))
	}) {
		f.examined++
		spec := r.Spec.(*networkingv1.DestinationRule)
		switch {
		case isCertified(r.Object):
		case spec.WorkloadSelector != nil: // a rule for workloads of its own namespace, regardless of its exportTo
			if ns == f.client && f.selects(r.Object) {
				return []*kinds.Object{r.Object} // it is not merged with the rules for all workloads
			}
		case exported(spec.ExportTo, f.index.Mesh.GetDefaultDestinationRuleExportTo(), ns, f.client):
			all = append(all, r.Object)
		}
	}
	return all
}

func (f *rulesFinder) selects(o *kinds.Object) bool {
	if f.selectedSet == nil {
		f.selectedSet = map[*kinds.Object]struct{}{}
		for o := range f.selected.All {
			f.selectedSet[o] = struct{}{}
		}
	}
	_, ok := f.selectedSet[o]
	return ok
}
