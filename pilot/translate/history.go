package translate

import (
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// history holds what each of the last Snapshots changed, for whoever makes something of what it made of an earlier one. Safe for concurrent use.
type history struct {
	mu   sync.Mutex
	list []change // by revision, without gaps
}

// change is in what a Snapshot differs from the one before.
type change struct {
	revision uint64
	*scope.Changes
}

// keptChanges bounds a history.
const keptChanges = 256

// note enters what the newest Snapshot changed.
func (h *history) note(revision uint64, c *scope.Changes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.list); n > 0 && h.list[n-1].revision+1 != revision {
		h.list = nil
	}
	if len(h.list) >= keptChanges {
		h.list = slices.Delete(h.list, 0, keptChanges/2)
	}
	own := *c // c is a part of its Index, which would be kept as long, and its Snapshot
	h.list = append(h.list, change{revision, &own})
}

// moves tells whether the cohort of a proxy of a namespace may be another at a revision than at an earlier one.
func (h *history) moves(from, to uint64, namespace string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, ok := h.between(from, to)
	return !ok || slices.ContainsFunc(list, func(c change) bool { return c.Joins.Of(namespace) })
}

// between gives the changes after one revision, up to another. false: they are not known.
func (h *history) between(from, to uint64) ([]change, bool) {
	if len(h.list) == 0 || from >= to || from+1 < h.list[0].revision || to > h.list[len(h.list)-1].revision {
		return nil, false
	}
	first := h.list[0].revision
	return h.list[from+1-first : to+1-first], true
}

// since gives all that changed after one revision, up to another. false: that is not known.
func (h *history) since(from, to uint64) (*scope.Changes, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, ok := h.between(from, to)
	if !ok {
		return nil, false
	}
	if len(list) == 1 {
		return list[0].Changes, true
	}
	all := &scope.Changes{}
	for _, c := range list {
		all.Add(c.Changes)
	}
	return all, true
}
