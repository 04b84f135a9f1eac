package translate

import (
	"sync"

	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// named holds resources that are asked for by name, for each K that sees them alike: worked out by the first that asks. The zero value is empty.
type named[K comparable] struct {
	mu   sync.RWMutex
	made map[K]map[string]*envoy.Resource
}

// assignmentsKey is all of a cohort that assignments depend on.
type assignmentsKey struct {
	scope cohort.Scope
	node  string
	place cohort.Place
}

// get gives the resource of that name. make tells whether there is anything by it: names that clients made up are not remembered.
func (n *named[K]) get(k K, name string, make func() (r *envoy.Resource, exists bool)) *envoy.Resource {
	n.mu.RLock()
	r := n.made[k][name]
	n.mu.RUnlock()
	if r != nil {
		return r
	}
	r, exists := make()
	if !exists {
		return r
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.made == nil {
		n.made = map[K]map[string]*envoy.Resource{}
	}
	if n.made[k] == nil {
		n.made[k] = map[string]*envoy.Resource{}
	}
	n.made[k][name] = r
	return r
}
