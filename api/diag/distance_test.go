package diag_test

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "abc", 3}, {"host", "hosts", 1}, {"grpcAdr", "grpcAddr", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}} {
		if got := diag.Distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct{ name, want string }{{"v22", "v2"}, {"v3", "v1"}, {"x", ""}, {"rewiews", "reviews"}, {"re_views", "reviews"}, {"reviewsandmore", ""}} {
		if got := diag.Nearest(c.name, []string{"v2", "v1", "reviews"}); got != c.want {
			t.Errorf("%q: %q, want %q", c.name, got, c.want)
		}
	}
}
