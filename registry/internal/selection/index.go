package selection

import (
	"maps"

	"github.com/istiod-lite/istiod-lite/registry/internal/set"
)

// Index relates selectors S to members M within each namespace.
//
// A selector is in the bucket of one of its label pairs, the first by name. A member is in a bucket only for those of
// its pairs that have a bucket. Pods have many labels, and selectors use few of them.
type Index[S, M comparable] struct {
	selectors map[S]labelled
	members   map[M]labelled
	byNS      map[string]map[M]struct{}
	buckets   map[pair]*bucket[S, M]
}

type labelled struct {
	namespace string
	labels    map[string]string
}

type pair struct{ namespace, key, value string }

type bucket[S, M comparable] struct {
	selectors set.Set[S]
	members   set.Set[M]
}

// New returns an empty index.
func New[S, M comparable]() *Index[S, M] {
	return &Index[S, M]{map[S]labelled{}, map[M]labelled{}, map[string]map[M]struct{}{}, map[pair]*bucket[S, M]{}}
}

// SetSelector adds or replaces s. An empty selector selects nothing and is removed.
func (x *Index[S, M]) SetSelector(s S, namespace string, labels map[string]string) {
	if old, ok := x.selectors[s]; ok {
		if old.namespace == namespace && maps.Equal(old.labels, labels) {
			return
		}
		p := bucketKey(old)
		b := x.buckets[p]
		if b.selectors.Remove(s); b.selectors.Len() == 0 {
			delete(x.buckets, p)
		}
		delete(x.selectors, s)
	}
	if len(labels) == 0 {
		return
	}
	l := labelled{namespace, labels}
	x.selectors[s] = l
	p := bucketKey(l)
	b := x.buckets[p]
	if b == nil {
		b = &bucket[S, M]{}
		x.buckets[p] = b
		for m := range x.byNS[namespace] {
			if v, ok := x.members[m].labels[p.key]; ok && v == p.value {
				b.members.Add(m)
			}
		}
	}
	b.selectors.Add(s)
}

// SetMember adds or replaces m.
func (x *Index[S, M]) SetMember(m M, namespace string, labels map[string]string) {
	x.RemoveMember(m)
	x.members[m] = labelled{namespace, labels}
	ns := x.byNS[namespace]
	if ns == nil {
		ns = map[M]struct{}{}
		x.byNS[namespace] = ns
	}
	ns[m] = struct{}{}
	x.eachBucket(m, func(b *bucket[S, M]) { b.members.Add(m) })
}

// RemoveMember removes m.
func (x *Index[S, M]) RemoveMember(m M) {
	l, ok := x.members[m]
	if !ok {
		return
	}
	x.eachBucket(m, func(b *bucket[S, M]) { b.members.Remove(m) })
	delete(x.members, m)
	if ns := x.byNS[l.namespace]; len(ns) == 1 {
		delete(x.byNS, l.namespace)
	} else {
		delete(ns, m)
	}
}

// Selecting calls f for each selector that selects m.
func (x *Index[S, M]) Selecting(m M, f func(S)) {
	labels := x.members[m].labels
	x.eachBucket(m, func(b *bucket[S, M]) {
		for s := range b.selectors.All {
			if Subset(x.selectors[s].labels, labels) {
				f(s)
			}
		}
	})
}

// Selected calls f for each member that s selects.
func (x *Index[S, M]) Selected(s S, f func(M)) {
	l, ok := x.selectors[s]
	if !ok {
		return
	}
	for m := range x.buckets[bucketKey(l)].members.All {
		if Subset(l.labels, x.members[m].labels) {
			f(m)
		}
	}
}

func (x *Index[S, M]) eachBucket(m M, f func(*bucket[S, M])) {
	l := x.members[m]
	for k, v := range l.labels {
		if b := x.buckets[pair{l.namespace, k, v}]; b != nil {
			f(b)
		}
	}
}

func bucketKey(l labelled) pair {
	p := pair{namespace: l.namespace}
	for k, v := range l.labels {
		if p.key == "" || k < p.key {
			p.key, p.value = k, v
		}
	}
	return p
}

// Subset reports whether labels have every pair of selector.
func Subset(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Empty reports whether the index has no selectors and no members.
func (x *Index[S, M]) Empty() bool {
	return len(x.selectors)+len(x.members)+len(x.byNS)+len(x.buckets) == 0
}
