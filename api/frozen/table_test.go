package frozen_test

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/frozen"
)

type pair struct{ key, value int }

func byKey(a, b pair) int { return cmp.Compare(a.key, b.key) }

// TestTableAgreesWithMap compares a Table with a map through edits of every size, and checks that earlier versions stay
// unchanged.
func TestTableAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, model := frozen.NewTable(byKey), map[int]int{}
		list := func(m map[int]int) []pair {
			var all []pair
			for k, v := range m {
				all = append(all, pair{k, v})
			}
			slices.SortFunc(all, byKey)
			return all
		}
		keys := rapid.IntRange(0, rapid.SampledFrom([]int{3, 100, 1000}).Draw(t, "keys"))
		for range rapid.IntRange(1, 8).Draw(t, "edits") {
			before, was := table, list(model)
			e := &frozen.Edit{}
			deletes := rapid.IntRange(0, 10).Draw(t, "deletes")
			for range rapid.IntRange(0, 300).Draw(t, "size") {
				p := pair{keys.Draw(t, "key"), rapid.IntRange(0, 2).Draw(t, "value")}
				if rapid.IntRange(0, 9).Draw(t, "what") < deletes {
					table.Delete(e, p)
					delete(model, p.key)
				} else {
					table.Put(e, p)
					model[p.key] = p.value
				}
				if table.Len() != len(model) {
					t.Fatalf("%d items, not %d", table.Len(), len(model))
				}
			}
			e.Done()
			want := list(model)
			if got := slices.Collect(table.All); !slices.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
			if got := slices.Collect(before.All); !slices.Equal(got, was) {
				t.Fatalf("the one before became %v, was %v", got, was)
			}
			checkDiff(t, before, table)
			checkDiff(t, table, frozen.TableOf(byKey, want))
			i := rapid.IntRange(0, len(want)).Draw(t, "cut")
			checkDiff(t, before, frozen.Concat(byKey, frozen.TableOf(byKey, want[:i]), frozen.NewTable(byKey), frozen.TableOf(byKey, want[i:])))
			k := keys.Draw(t, "sought")
			v, ok := model[k]
			if p, found := table.Get(pair{key: k}); found != ok || found && p.value != v {
				t.Fatalf("%d: %v, %v", k, p, found)
			}
			wide := func(p pair) int { return cmp.Compare(p.key/50, k/50) }
			odd := func(p pair) bool { return p.value == 1 }
			if got := slices.Collect(table.Matching(odd)); !slices.Equal(got, keep(want, odd)) {
				t.Fatalf("matching: %v of %v", got, want)
			}
			run := slices.DeleteFunc(slices.Clone(want), func(p pair) bool { return wide(p) != 0 })
			if got := slices.Collect(table.Where(wide)); !slices.Equal(got, run) {
				t.Fatalf("around %d: %v, want %v", k, got, run)
			}
			if got := slices.Collect(table.Select(wide, odd)); !slices.Equal(got, keep(run, odd)) {
				t.Fatalf("matching around %d: %v of %v", k, got, run)
			}
		}
	})
}

// keep returns the items for which match reports true.
func keep(list []pair, match func(pair) bool) []pair {
	return slices.DeleteFunc(slices.Clone(list), func(p pair) bool { return !match(p) })
}

// TestTracedItems shows that a look-up finds the traced items that it seeks, and no others. The table need not have
// them.
func TestWatchedItems(t *testing.T) {
	traced := []pair{{1, 1}, {2, 1}, {2, 2}, {3, 2}}
	two := func(p pair) int { return cmp.Compare(p.key, 2) }
	even := func(p pair) bool { return p.value%2 == 0 }
	var found []pair
	table := frozen.TableOf(byKey, []pair{{2, 1}, {4, 4}}).Traced(traced, func(p pair) { found = append(found, p) })
	for name, c := range map[string]struct {
		lookUp func()
		want   []pair
	}{
		"all":      {func() { table.All(func(pair) bool { return false }) }, traced},
		"first":    {func() { table.First(two) }, traced[1:3]},
		"get":      {func() { table.Get(pair{key: 1}) }, traced[:1]},
		"where":    {func() { drain(table.Where(two)) }, traced[1:3]},
		"select":   {func() { drain(table.Select(two, even)) }, traced[2:3]},
		"matching": {func() { drain(table.Matching(even)) }, traced[2:]},
		"none":     {func() { drain(table.Where(func(p pair) int { return cmp.Compare(p.key, 4) })) }, nil},
	} {
		found = nil
		if c.lookUp(); !slices.Equal(found, c.want) {
			t.Errorf("%s: %v, want %v", name, found, c.want)
		}
	}
}

func drain(rows iter.Seq[pair]) {
	for range rows {
	}
}

// checkDiff compares Diff with the difference of two maps.
func checkDiff(t *rapid.T, from, to frozen.Table[pair]) {
	type change struct {
		from, to pair
		had, has bool
	}
	want, got := map[int]change{}, map[int]change{}
	for p := range from.All {
		want[p.key] = change{from: p, had: true}
	}
	for p := range to.All {
		c := want[p.key]
		c.to, c.has = p, true
		if want[p.key] = c; c.had && c.from == p {
			delete(want, p.key)
		}
	}
	last := -1
	frozen.Diff(from, to, func(a, b pair, had, has bool) {
		k := a.key
		if !had {
			k = b.key
		}
		if k <= last {
			t.Fatalf("%v, %v (%t, %t) after %d", a, b, had, has, last)
		}
		got[k], last = change{a, b, had, has}, k
	})
	if !maps.Equal(got, want) {
		t.Fatalf("differ in %v, want %v", got, want)
	}
}

// BenchmarkTable puts one item into tables of several sizes.
func BenchmarkTable(b *testing.B) {
	for _, n := range []int{250, 1000, 4000, 100000} {
		table, e := frozen.NewTable(byKey), &frozen.Edit{}
		for i := range n {
			table.Put(e, pair{i * 7919 % n, i})
		}
		e.Done()
		b.Run(sizeName(n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				e := &frozen.Edit{}
				table.Put(e, pair{i % n, -i})
				e.Done()
			}
		})
	}
}

func sizeName(n int) string {
	return map[int]string{250: "250", 1000: "1k", 4000: "4k", 100000: "100k"}[n]
}
