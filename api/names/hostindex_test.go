package names_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// TestHostIndex: the index finds what Covers says of each of its hosts.
func TestHostIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.StringMatching(`(\*|\*\.|\*-|)([ab]\.|[ab]-|[ab]){0,3}[ab]?`)
		var x names.HostIndex[int]
		var list []string
		for i, h := range rapid.SliceOfN(host, 0, 12).Draw(t, "hosts") {
			x.Add(h, i)
			list = append(list, h)
		}
		asked := host.Draw(t, "asked")
		var covering, covered, wantCovering, wantCovered []int
		last := ""
		for h, values := range x.Covering(asked) {
			covering = append(covering, values...)
			if last != "" && len(h) > len(last) && last != asked {
				t.Fatalf("%s comes after %s", h, last)
			}
			last = h
		}
		for _, values := range x.Covered(asked) {
			covered = append(covered, values...)
		}
		for i, h := range list {
			if names.Covers(h, asked) {
				wantCovering = append(wantCovering, i)
			}
			if names.Covers(asked, h) {
				wantCovered = append(wantCovered, i)
			}
		}
		if got := x.Overlaps(asked); got != (len(wantCovering)+len(wantCovered) > 0) || x.Covers(asked) != (len(wantCovering) > 0) {
			t.Fatalf("%q in %q: overlaps %v, covers %v", asked, list, got, x.Covers(asked))
		}
		slices.Sort(covering)
		slices.Sort(covered)
		if !slices.Equal(covering, wantCovering) || !slices.Equal(covered, wantCovered) {
			t.Fatalf("%q in %q: covered by %v, want %v; covers %v, want %v", asked, list, covering, wantCovering, covered, wantCovered)
		}
	})
}
