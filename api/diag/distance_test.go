package diag_test

import (
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "abc", 3}, {"host", "hosts", 1},
		{"grpcAdr", "grpcAddr", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}} {
		if got := diag.Distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct{ name, want string }{{"v22", "v2"}, {"v3", "v1"},
		{"x", ""}, {"rewiews", "reviews"}, {"re_views", "reviews"}, {"reviewsandmore", ""}} {
		if got := diag.Nearest(c.name, []string{"v2", "v1", "reviews"}); got != c.want {
			t.Errorf("%q: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNearestField(t *testing.T) {
	for _, c := range []struct{ name, known, want string }{
		{"trafficPolicys", "trafficPolicy exportTo", "trafficPolicy"},
		{"trafficPolicies", "trafficPolicy exportTo", "trafficPolicy"},
		{"policy", "trafficPolicy exportTo", "trafficPolicy"},
		{"outbound_policy", "outboundTrafficPolicy", "outboundTrafficPolicy"},
		{"selector", "workloadSelector", "workloadSelector"},
		{"selectors", "selector", "selector"},
		{"matches", "match", "match"},
		{"hostname", "hosts http", "hosts"},
		{"tlsSettings", "tls", "tls"},
		{"httpsRedirect", "http tls", "http"},
		{"mirror", "mirrors mirrorPercentage", "mirrors"},
		{"percentage", "mirrorPercentage delayPercentage", ""},
		{"to", "exportTo", "exportTo"},
		{"subject", "spec", ""},
		{"", "spec", ""},
	} {
		if got := diag.NearestField(c.name, strings.Fields(c.known)); got != c.want {
			t.Errorf("%s of %s: got %q, want %q", c.name, c.known, got, c.want)
		}
	}
}
