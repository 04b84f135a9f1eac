package wire

import (
	"fmt"
	"slices"
	"testing"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Edits whose names look alike when they are concatenated differ.
func TestEditsOfSimilarNamesDiffer(t *testing.T) {
	l := NewInterner()
	of := func(names []string) *envoy.Names { return l.Of(slices.Clone(names)) }
	from := of([]string{"x", "a"})
	for _, c := range []struct{ remove, add, want []string }{
		{nil, []string{"b\nc"}, []string{"a", "b\nc", "x"}},
		{nil, []string{"b", "c"}, []string{"a", "b", "c", "x"}},
		{nil, []string{"bc"}, []string{"a", "bc", "x"}},
		{[]string{"a"}, []string{"x"}, []string{"x"}},
		{[]string{"a", "x"}, nil, nil},
		{nil, []string{"a", "x"}, []string{"a", "x"}},
	} {
		for range 2 { // the second time from what is kept
			if got := l.Edited(from, of(c.remove), of(c.add)); !slices.Equal(got.All(), c.want) {
				t.Errorf("-%q +%q gives %q, want %q", c.remove, c.add, got.All(), c.want)
			}
		}
	}
	if once := l.Edited(from, nil, of([]string{"b"})); once != l.Edited(from, nil, of([]string{"b"})) {
		t.Error("the same edit gives two lists")
	}
}

// TestOversizedVersionsEvictNothing: versions that are too large to be kept evict no others.
func TestOversizedVersionsEvictNothing(t *testing.T) {
	made := NewInterner()
	bring := func(n int, prefix string) {
		var list []entry
		for i := range n {
			list = append(list, entry{name: fmt.Appendf(nil, "%s%d", prefix, i), version: []byte("1")})
		}
		if _, err := made.versions(envoy.ClusterType, list); err != nil {
			t.Fatal(err)
		}
	}
	bring(100, "a")
	if len(made.recent) != 1 {
		t.Fatal("nothing is kept")
	}
	bring(40000, "b")
	if len(made.recent) != 1 {
		t.Errorf("%d shared lists are left", len(made.recent))
	}
}
