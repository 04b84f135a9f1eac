package xds

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestDeadlines: over any history of what a stream waits for, each deadline passes once, not before its time, and the
// next one is the first of all that are left.
func TestDeadlines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d deadlines
		want := map[deadline]time.Time{}
		now := time.Unix(1000, 0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			x := deadline(rapid.IntRange(0, int(allDeadlines)-1).Draw(t, "deadline"))
			at := now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "in")) * time.Second)
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				d.set(x, at)
				want[x] = at
			case 1:
				d.clear(x)
				delete(want, x)
			case 2:
				if d.keep(x, true, at); want[x].IsZero() {
					want[x] = at
				}
			case 3:
				d.keep(x, false, at)
				delete(want, x)
			case 4:
				now = now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "later")) * time.Second)
				for {
					got, ok := d.expire(now)
					if !ok {
						break
					}
					if at, waits := want[got]; !waits || at.After(now) {
						t.Fatalf("%d passes at %v, want %v", got, now, at)
					}
					delete(want, got)
				}
				maps.DeleteFunc(want, func(x deadline, at time.Time) bool {
					if !at.After(now) {
						t.Fatalf("%d has not passed at %v", x, now)
					}
					return false
				})
			}
			var first time.Time
			for x := range allDeadlines {
				if d.waits(x) != !want[x].IsZero() {
					t.Fatalf("the stream waits for %d: %v", x, d.waits(x))
				}
				if at := want[x]; !at.IsZero() && (first.IsZero() || at.Before(first)) {
					first = at
				}
			}
			if !d.next().Equal(first) {
				t.Fatalf("the next is at %v, want %v", d.next(), first)
			}
		}
	})
}
