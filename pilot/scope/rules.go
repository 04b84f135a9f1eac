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

// Rules returns the DestinationRules in force when proxies of a namespace call a service: those of the client's namespace come first, then of the
// service's, then of the root namespace; in each the most specific host. Several for one host in one namespace are merged by whoever reads them,
// in this order. Rules with a workload selector count where they are among selected.
func (x *Index) Rules(client string, s *registry.Service, selected frozen.List[*kinds.Object]) frozen.List[*kinds.Object] {
	k := rulesKey{client, s, selected}
	if l, ok := x.long.get(k); ok {
		return l
	}
	f := rulesFinder{index: x, client: client, selected: selected}
	l := frozen.ListOf(f.find(s)...)
	if f.read > 8 {
		x.long.put(k, l)
	}
	return l
}

// longRules keeps what was found among many rules: each subset of their service asks for it again. Safe for concurrent use.
type longRules struct {
	mu   sync.RWMutex
	made map[rulesKey]frozen.List[*kinds.Object]
}

type rulesKey struct {
	client   string
	service  *registry.Service
	selected frozen.List[*kinds.Object]
}

func (r *longRules) get(k rulesKey) (l frozen.List[*kinds.Object], ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.made) > 0 {
		l, ok = r.made[k]
	}
	return l, ok
}

func (r *longRules) put(k rulesKey, l frozen.List[*kinds.Object]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made == nil {
		r.made = map[rulesKey]frozen.List[*kinds.Object]{}
	}
	r.made[k] = l
}

// rulesFinder finds the DestinationRules of one service.
type rulesFinder struct {
	index    *Index
	client   string
	selected frozen.List[*kinds.Object]
	among    map[*kinds.Object]struct{} // selected, once it was asked for
	read     int
}

func (f *rulesFinder) find(s *registry.Service) []*kinds.Object {
	root := f.index.RootNamespace()
	places := []string{f.client, s.Namespace, root}
	if f.client == root {
		places = places[1:] // the root namespace's own rules yield to the service's
	}
	for _, ns := range slices.Compact(places) {
		if l := f.in(ns, s.Host); len(l) > 0 {
			return l
		}
	}
	return nil
}

// in finds the rules of a namespace: of those that cover the host, the most specific.
func (f *rulesFinder) in(ns, host string) []*kinds.Object {
	if l := f.visible(ns, host); len(l) > 0 {
		return l
	}
	of := func(r rule) int { return strings.Compare(r.Namespace, ns) }
	if _, ok := f.index.rules.First(func(r rule) int { return cmp.Or(of(r), frozen.ComparePrefix(r.host, "*")) }); !ok {
		return nil
	}
	partial := func(tail string) bool {
		_, ok := f.index.partialRules.First(func(r rule) int { return cmp.Or(of(r), strings.Compare(r.host[1:], tail)) })
		return ok
	}
	if _, ok := f.index.partialRules.First(of); !ok {
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

// visible lists the rules of a namespace for one host, as it is written there.
func (f *rulesFinder) visible(ns, host string) []*kinds.Object {
	var all []*kinds.Object
	for r := range f.index.rules.Where(func(r rule) int { return cmp.Or(strings.Compare(r.Namespace, ns), strings.Compare(r.host, host)) }) {
		f.read++
		spec := r.Spec.(*networkingv1.DestinationRule)
		switch {
		case !exported(spec.ExportTo, f.index.Mesh.GetDefaultDestinationRuleExportTo(), ns, f.client):
		case len(spec.GetWorkloadSelector().GetMatchLabels()) == 0:
			all = append(all, r.Object)
		case ns == f.client && f.selects(r.Object): // a rule for this workload is not merged with those for everybody
			return []*kinds.Object{r.Object}
		}
	}
	return all
}

func (f *rulesFinder) selects(o *kinds.Object) bool {
	if f.among == nil {
		f.among = map[*kinds.Object]struct{}{}
		for o := range f.selected.All {
			f.among[o] = struct{}{}
		}
	}
	_, ok := f.among[o]
	return ok
}
