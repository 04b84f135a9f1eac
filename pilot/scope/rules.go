package scope

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Rules returns the DestinationRules that apply when proxies of a namespace call a service. The first namespace with a
// rule for it wins: the client's, the service's, then the root namespace. Within it the most specific host wins.
// Several rules for that host are merged by the reader, in this order. A rule with a workload selector applies if it is
// in selected.
func (x *Index) Rules(client string, s *registry.Service, selected frozen.List[*kinds.Object]) frozen.List[*kinds.Object] {
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

// rulesCache caches results that were found among many rules: each subset of a service asks for them again. Safe for
// concurrent use.
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
	if r.rules == nil {
		r.rules = map[rulesKey]frozen.List[*kinds.Object]{}
	}
	r.rules[k] = l
}

// rulesFinder finds the DestinationRules of one service.
type rulesFinder struct {
	index       *Index
	client      string
	selected    frozen.List[*kinds.Object]
	selectedSet map[*kinds.Object]struct{} // selected as a set, made on first use
	examined    int
}

func (f *rulesFinder) find(s *registry.Service) []*kinds.Object {
	root := f.index.RootNamespace()
	namespaces := []string{f.client, s.Namespace, root}
	if f.client == root {
		namespaces = namespaces[1:] // the root namespace's own rules come after the service's
	}
	for _, ns := range slices.Compact(namespaces) {
		if l := f.inNamespace(ns, s.Host); len(l) > 0 {
			return l
		}
	}
	return nil
}

// inNamespace returns the rules of a namespace that cover the host most specifically.
func (f *rulesFinder) inNamespace(ns, host string) []*kinds.Object {
	if l := f.visible(ns, host); len(l) > 0 {
		return l
	}
	ofNamespace := func(r rule) int { return strings.Compare(r.Namespace, ns) }
	if none(f.index, f.index.rules, func(r rule) int { return cmp.Or(ofNamespace(r), frozen.ComparePrefix(r.host, "*")) }) {
		return nil
	}
	partial := func(tail string) bool {
		_, ok := f.index.partialRules.First(func(r rule) int { return cmp.Or(ofNamespace(r), strings.Compare(r.host[1:], tail)) })
		return ok
	}
	if none(f.index, f.index.partialRules, ofNamespace) {
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

// visible returns the rules of a namespace whose host is written exactly so.
func (f *rulesFinder) visible(ns, host string) []*kinds.Object {
	var all []*kinds.Object
	for r := range f.index.rules.Where(func(r rule) int { return cmp.Or(strings.Compare(r.Namespace, ns), strings.Compare(r.host, host)) }) {
		f.examined++
		spec := r.Spec.(*networkingv1.DestinationRule)
		switch {
		case !exported(spec.ExportTo, f.index.Mesh.GetDefaultDestinationRuleExportTo(), ns, f.client):
		case len(spec.GetWorkloadSelector().GetMatchLabels()) == 0:
			all = append(all, r.Object)
		case ns == f.client && f.selects(r.Object): // a rule for this workload is not merged with those for all
			return []*kinds.Object{r.Object}
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
