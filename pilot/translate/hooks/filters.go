package hooks

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// maxFilters limits the cached lists of filters, enough for the policies of the namespaces that change most.
const maxFilters = 512

// filterCache caches filters by their input, so that the chains of all workloads with the same policies share them.
// Safe for concurrent use.
type filterCache struct {
	mu    sync.Mutex
	lists *simplelru.LRU[filterKey, any]
}

// filterKey is the input of a list of filters.
type filterKey struct {
	feature string
	chain   feature.Chain
	network bool // whether it is a list of network filters, not HTTP filters
}

func newFilterCache() *filterCache {
	lists, _ := simplelru.NewLRU[filterKey, any](maxFilters, nil) // fails only for sizes below 1
	return &filterCache{lists: lists}
}

// filters returns the filters that a feature adds to a chain. make gets only the part of the chain on which the feature
// says that they depend.
func filters[F any](h *Hooks, f *feature.Feature, c feature.Chain, network bool, make func(feature.Chain) []F) []F {
	if f.FiltersReadOf == nil {
		return make(c)
	}
	k := filterKey{f.Name, f.FiltersReadOf(c), network}
	if h.filters == nil {
		return make(k.chain)
	}
	h.filters.mu.Lock()
	found, ok := h.filters.lists.Get(k)
	h.filters.mu.Unlock()
	if ok {
		return found.([]F)
	}
	made := make(k.chain)
	h.filters.mu.Lock()
	defer h.filters.mu.Unlock()
	h.filters.lists.Add(k, made)
	return made
}
