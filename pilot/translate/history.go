package translate

import (
	"cmp"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// history holds what Snapshots changed, each of the last ones by itself and those before them together, for whoever makes something of what it made of an earlier one.
// It begins with the last Snapshot that changed everything. Safe for concurrent use.
type history struct {
	mu      sync.Mutex
	changes []change                   // by revision, without gaps
	merged  map[[2]uint64]*scope.Dirty // what since gave after the newest note
}

// change is in what Snapshots differ from those before, from one revision to another.
type change struct {
	from, to uint64
	*scope.Dirty
}

// Bounds of a history.
const (
	maxChanges = 256     // by themselves
	maxNames   = 1 << 14 // of hosts and places, of those together: beyond, nothing is known of them
)

// record enters what the newest Snapshot changed.
func (h *history) record(revision uint64, c *scope.Dirty) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.changes); c.All || n > 0 && h.changes[n-1].to+1 != revision {
		h.changes = nil
	}
	if n := maxChanges / 2; len(h.changes) >= maxChanges {
		first := h.changes[:n]
		if first[0].All { // with which all that came after would be everything
			first = first[1:]
		}
		old := change{first[0].from, first[len(first)-1].to, mergeChanges(first)}
		if h.changes = slices.Delete(h.changes, 0, n); len(old.Hosts)+len(old.Endpoints)+len(old.Listeners) <= maxNames {
			h.changes = slices.Insert(h.changes, 0, old)
		}
	}
	own := *c // c is a part of its Index, which would be kept as long, and its Snapshot
	h.changes, h.merged = append(h.changes, change{revision, revision, &own}), map[[2]uint64]*scope.Dirty{}
}

// mayReassign tells whether the cohort of a proxy of a namespace may be another at a revision than at an earlier one.
func (h *history) mayReassign(from, to uint64, namespace string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, ok := h.between(from, to)
	return !ok || slices.ContainsFunc(list, func(c change) bool { return c.Reassign.Includes(namespace) })
}

// between gives the changes after one revision, up to another, and perhaps some before or after them. false: they are not known.
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

// since gives all that changed after one revision, up to another. false: that is not known.
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

func mergeChanges(list []change) *scope.Dirty {
	var all []*scope.Dirty
	for _, c := range list {
		all = append(all, c.Dirty)
	}
	return scope.MergeDirty(all)
}
