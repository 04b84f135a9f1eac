package engine

import (
	"cmp"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// history holds the changes between Snapshots, so that cached results can be updated incrementally. The newest changes
// are kept one by one, older ones merged. It begins with the last Snapshot in which everything was dirty. Safe for
// concurrent use.
type history struct {
	mu      sync.Mutex
	changes []change                   // ordered by revision, without gaps
	merged  map[[2]uint64]*scope.Dirty // results of since, dropped when a change is recorded
}

// change is what is dirty between two revisions.
type change struct {
	from, to uint64
	*scope.Dirty
}

// Limits of a history.
const (
	maxChanges = 256     // changes that are kept one by one
	maxNames   = 1 << 14 // hosts, endpoints, listeners and credentials in the merged change; a larger one is dropped
)

// record appends the changes of the newest Snapshot.
func (h *history) record(revision uint64, c *scope.Dirty) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.changes); c.All || n > 0 && h.changes[n-1].to+1 != revision {
		h.changes = nil
	}
	if n := maxChanges / 2; len(h.changes) >= maxChanges {
		first := h.changes[:n]
		if first[0].All { // merging it would make everything dirty
			first = first[1:]
		}
		old := change{first[0].from, first[len(first)-1].to, mergeChanges(first)}
		if h.changes = slices.Delete(h.changes, 0, n); len(old.Hosts)+len(old.Endpoints)+len(old.Listeners)+len(old.Credentials) <= maxNames {
			h.changes = slices.Insert(h.changes, 0, old)
		}
	}
	own := *c // c is a part of its Index: a pointer to it would keep the Index and its Snapshot alive
	h.changes, h.merged = append(h.changes, change{revision, revision, &own}), map[[2]uint64]*scope.Dirty{}
}

// mayReassign reports whether a proxy in a namespace may belong to another cohort than it did at an earlier revision.
func (h *history) mayReassign(from, to uint64, namespace string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, ok := h.between(from, to)
	return !ok || slices.ContainsFunc(list, func(c change) bool { return c.Reassign.Includes(namespace) })
}

// between returns the changes after one revision, up to another. If changes were merged it also returns some before or
// after these. It returns false if the history does not hold them any more.
func (h *history) between(from, to uint64) ([]change, bool) {
	if len(h.changes) == 0 || from >= to || from+1 < h.changes[0].from || to > h.changes[len(h.changes)-1].to {
		return nil, false
	}
	at := func(revision uint64) int {
		i, _ := slices.BinarySearchFunc(h.changes, revision, func(c change, r uint64) int { return cmp.Compare(c.to, r) })
		return i
	}
	return h.changes[at(from+1) : at(to)+1], true
}

// since returns what is dirty after one revision, up to another. It returns false if the history does not hold that any
// more.
func (h *history) since(from, to uint64) (*scope.Dirty, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, ok := h.between(from, to)
	if !ok {
		return nil, false
	}
	if len(list) == 1 {
		return list[0].Dirty, true
	}
	k := [2]uint64{from, to}
	if h.merged[k] == nil {
		h.merged[k] = mergeChanges(list)
	}
	return h.merged[k], true
}

// mergeChanges returns one scope.Dirty for several changes.
func mergeChanges(list []change) *scope.Dirty {
	all := lists.Map(list, func(c change) *scope.Dirty { return c.Dirty })
	return scope.MergeDirty(all)
}
