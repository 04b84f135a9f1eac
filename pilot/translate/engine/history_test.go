package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// TestHistoryMergesOldChanges: after many small changes the older ones are merged, not forgotten. What since returns
// for an old revision may hold too much, never too little, and is not marked as everything. A merged change that is too
// large is dropped.
func TestHistoryMergesOldChanges(t *testing.T) {
	for _, hosts := range []int{1, 10 * maxNames / 1000} {
		var h history
		h.record(1, &scope.Dirty{All: true})
		for i := uint64(2); i <= 1000; i++ {
			c := &scope.Dirty{Endpoints: []string{"e"}, Reassign: scope.Reassign{Namespaces: []string{"each"}}}
			if i == 2 {
				c.Reassign.Namespaces = []string{"first"}
			}
			for n := range hosts {
				c.Hosts = append(c.Hosts, fmt.Sprintf("h%06d-%d", i, n))
			}
			h.record(i, c)
		}
		if len(h.changes) > maxChanges {
			t.Errorf("%d changes are held", len(h.changes))
		}
		for from := uint64(1); from < 1000; from++ {
			c, ok := h.since(from, 1000)
			near := 1000-from <= maxChanges/2
			switch {
			case !ok && (near || hosts == 1):
				t.Fatalf("what came after %d is not known", from)
			case ok && (c.All || len(c.Endpoints) != 1 || near && uint64(len(c.Hosts)) != (1000-from)*uint64(hosts)):
				t.Fatalf("after %d came changes of %d hosts, and of endpoints of %v", from, len(c.Hosts), c.Endpoints)
			case ok:
				if i, _ := slices.BinarySearch(c.Hosts, fmt.Sprintf("h%06d-0", from+1)); len(c.Hosts)-i < int(1000-from)*hosts {
					t.Fatalf("after %d came changes of %d hosts", from, len(c.Hosts)-i)
				}
			}
		}
		if !h.mayReassign(1, 1000, "first") || !h.mayReassign(2, 1000, "each") || h.mayReassign(1, 1000, "none") != (hosts > 1) {
			t.Errorf("%d hosts a change: proxies that may belong to another cohort are not known", hosts)
		}
		if _, ok := h.since(1, 1000); ok != (hosts == 1) {
			t.Errorf("%d hosts a change: what came after the first is known: %t", hosts, ok)
		}
	}
}
