package diff

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// What differs between two Unions is what looking at every name would find, whichever half has it and whatever is left
// out.
func TestDifferenceEqualsNameByNameComparison(t *testing.T) {
	const names = 5
	rapid.Check(t, func(t *rapid.T) {
		set := func(label string) *envoy.Set {
			if rapid.Bool().Draw(t, label+" is empty") {
				return nil
			}
			var list []*envoy.Resource
			for i := range names {
				if v := rapid.IntRange(0, 2).Draw(t, label); v > 0 {
					list = append(list, xdstest.Resource(fmt.Sprint("n", i), fmt.Sprint(v)))
				}
			}
			return envoy.NewSet(list)
		}
		var table envoy.NameInterner
		union := func(label string) envoy.Union {
			u := envoy.Union{Shared: set(label + " outbound"), Own: set(label + " inbound")}
			for i := range names {
				if rapid.IntRange(0, 5).Draw(t, label+" omits") == 0 {
					u.Omit = table.Intern([]string{fmt.Sprint("n", i)})
				}
			}
			return u
		}
		from, to := union("from"), union("to")
		if rapid.Bool().Draw(t, "one half stays") {
			to.Shared = from.Shared
		}
		var d Cache
		for range 2 { // the second time from what is kept
			got := d.Between(from, to, true)
			var changed, removed []*envoy.Resource
			for i := range names {
				name := fmt.Sprint("n", i)
				switch had, has := from.Get(name), to.Get(name); {
				case has != nil && (had == nil || had.Version != has.Version):
					changed = append(changed, has)
				case has == nil && had != nil:
					removed = append(removed, had)
				}
			}
			if !slices.Equal(got.Changed, changed) || !slices.Equal(got.Removed, removed) {
				t.Fatalf("got %v and %v, want %v and %v", got.Changed, got.Removed, changed, removed)
			}
		}
	})
}

// The versions of a list are the same whether or not they were computed before, and for whatever clusters.
func TestVersionCache(t *testing.T) {
	resources := func(versions ...string) []*envoy.Resource {
		var list []*envoy.Resource
		for i, v := range versions {
			list = append(list, xdstest.Resource(fmt.Sprint("n", i), v))
		}
		return list
	}
	list := resources("a", "b", "c")
	one, two := envoy.NewSet(resources("1", "2")), envoy.NewSet(resources("3", "4", "5"))
	by := &Versions{list: list}
	for _, x := range []struct {
		list     []*envoy.Resource
		clusters envoy.Union
		shared   bool
	}{
		{list, envoy.Union{Shared: one}, true},
		{list, envoy.Union{Shared: one, Own: envoy.NewSet([]*envoy.Resource{xdstest.Resource("other", "1")})}, true},
		{list, envoy.Union{Shared: one, Own: two}, false},
		{list, envoy.Union{Shared: one, Omit: new(envoy.NameInterner).Intern([]string{"n1"})}, false},
		{list, envoy.Union{Shared: two}, true},
		{list, envoy.Union{}, true},
		{slices.Clone(list), envoy.Union{Shared: one}, false},
		{list[:2], envoy.Union{Shared: one}, false},
		{nil, envoy.Union{Shared: one}, false},
		{list, envoy.Union{Shared: one}, true},
	} {
		got, again := by.WithClusters(x.list, x.clusters), by.WithClusters(x.list, x.clusters)
		if want := WithClusters(x.list, x.clusters); !slices.Equal(got, want) || by.Hash(x.list) != Hash(x.list) {
			t.Errorf("%v: told %v, want %v", x, got, want)
		}
		if len(got) > 0 && (&got[0] == &again[0]) != x.shared {
			t.Errorf("%v: shared: %v, want %v", x, !x.shared, x.shared)
		}
	}
	if (*Versions)(nil).Hash(list) != Hash(list) {
		t.Error("a list that nobody else is sent has another version")
	}
}

// TestCleanupsAreBounded: a Set that stays is not burdened with each snapshot.
func TestCleanupsOfALastingSetAreBounded(t *testing.T) {
	var d Cache
	b := envoy.NewSet([]*envoy.Resource{xdstest.Resource("a", "1"), xdstest.Resource("b", "1")})
	d.sets(nil, b, true)
	ByName := xdstest.Heap()
	const n = 200000
	for range n {
		d.Forget()
		d.sets(nil, b, true)
	}
	d.Forget()
	if grown := int64(xdstest.Heap()) - int64(ByName); grown > 1<<20 {
		t.Errorf("%d bytes for each time that a new stream came after a snapshot", grown/n)
	}
	runtime.KeepAlive(b)
}
