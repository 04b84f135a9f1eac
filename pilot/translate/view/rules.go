package view

import (
	"sync"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
)

// mergedRules caches merged rules that are many, or have many subsets, because the cluster of each subset needs them.
// Safe for concurrent use.
type mergedRules struct {
	mu      sync.RWMutex
	byRules map[traffic.Rules]*traffic.Merged
}

func (m *mergedRules) of(rules traffic.Rules) *traffic.Merged {
	if rules.Empty() {
		return &traffic.Merged{}
	}
	m.mu.RLock()
	r := m.byRules[rules]
	m.mu.RUnlock()
	if r != nil {
		return r
	}
	if r = traffic.Merge(rules); !r.Large() {
		return r
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	lists.Put(&m.byRules, rules, r)
	return r
}
