package engine

import (
	"sync"
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// whole returns a Set with a single partition that all generates. Any change invalidates it.
func whole(c *Cache, revision uint64, typeURL string, all func() []*envoy.Resource) *envoy.Set {
	return Get(c, Key{Type: typeURL}, revision, func(*Log) Generator[struct{}] {
		return Single(all, func(d *scope.Dirty) bool { return !d.NoHosts() })
	}).Set
}

// TestPanicIsNotCached: a Set whose generator panics is not cached as an empty one.
func TestPanicIsNotCached(t *testing.T) {
	var c Cache
	for range 2 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			whole(&c, 1, "a", func() []*envoy.Resource { panic("broken") })
		}()
	}
	if set := whole(&c, 1, "a", func() []*envoy.Resource { return []*envoy.Resource{{Name: "a"}} }); set.Len() != 1 {
		t.Error("it stays broken")
	}
}

func TestSetIsGeneratedOnce(t *testing.T) {
	var c Cache
	made := 0
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			whole(&c, 1, "a", func() []*envoy.Resource {
				made++
				return nil
			})
			c.Conflicts("any")
		})
	}
	wg.Wait()
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

// TestRevertedSetKeepsItsHistory: a Set that is again what it was at first may have differed in between.
func TestRevertedSetKeepsItsHistory(t *testing.T) {
	a, b := &envoy.Resource{Name: "a", Version: "1"}, &envoy.Resource{Name: "a", Version: "2"}
	is := []*envoy.Resource{1: a, 2: b, 3: a}
	var c Cache
	for i := range uint64(len(is)) {
		c.Advance(i, &scope.Dirty{Hosts: []string{"a"}})
	}
	for _, revision := range []uint64{1, 3, 2} {
		set := whole(&c, revision, "a", func() []*envoy.Resource { return is[revision : revision+1] })
		if got := set.Get("a"); got != is[revision] {
			t.Errorf("at revision %d it is %+v, want %+v", revision, got, is[revision])
		}
	}
}

// TestExtend checks that an extended Set follows both of its parts and is the same pointer while both are.
func TestExtend(t *testing.T) {
	a, b, c := &envoy.Resource{Name: "a"}, &envoy.Resource{Name: "b"}, &envoy.Resource{Name: "b", Version: "2"}
	base := envoy.NewSet([]*envoy.Resource{a})
	var cache Cache
	var last *envoy.Set
	for revision, s := range []struct {
		base  *envoy.Set
		added *envoy.Resource
		len   int
		same  bool
	}{{nil, b, 1, false}, {nil, b, 1, true}, {base, b, 2, false}, {base, b, 2, true}, {base, c, 2, false}, {nil, c, 1, false}} {
		set := Extend(&cache, Key{Type: "x"}, uint64(revision+1), nil, s.base, []*envoy.Resource{s.added})
		if set.Len() != s.len || set.Get("b") != s.added || set.Get("a") != s.base.Get("a") || set == last != s.same {
			t.Errorf("revision %d: %d resources, the same Set %v", revision+1, set.Len(), set == last)
		}
		last = set
	}
}

// TestUnusedSetsAreEvicted: a Set stays cached while it is used with every change, and is evicted some time after its
// last use.
func TestUnusedSetsAreEvicted(t *testing.T) {
	var c Cache
	none := func() []*envoy.Resource { return nil }
	for i := uint64(1); i < 4*maxUnused; i++ {
		c.Advance(i, &scope.Dirty{Hosts: []string{"a"}, Compare: true})
		whole(&c, i, "used", none)
		if i == 1 {
			whole(&c, i, "unused", none)
		}
	}
	if !c.has(Key{Type: "used"}) || c.Len() != 1 || len(c.history.changes) > maxChanges {
		t.Errorf("%d Sets are cached, %d changes", c.Len(), len(c.history.changes))
	}
}
