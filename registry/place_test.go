package registry

import "testing"

// TestLabels: the real istiod put these labels on endpoints.
func TestLabels(t *testing.T) {
	place := Place{Locality{"r1", "z1", "s1"}, "net1", "east", "node-1"}
	for _, c := range []struct {
		name, own string // of a label; an own value of "-" is none
		place     Place
		want      string
	}{
		{"topology.kubernetes.io/region", "-", place, "r1"},
		{"topology.kubernetes.io/region", "r9", place, "r1"},
		{"topology.kubernetes.io/region", "r9", Place{}, "r9"},
		{"topology.kubernetes.io/region", "-", Place{}, "-"},
		{"topology.kubernetes.io/zone", "-", place, "z1"},
		{"topology.istio.io/subzone", "-", place, "s1"},
		{"topology.istio.io/cluster", "west", place, "east"},
		{"kubernetes.io/hostname", "-", place, "node-1"},
		{"topology.istio.io/network", "-", place, "net1"},
		{"topology.istio.io/network", "", place, "net1"},
		{"topology.istio.io/network", "net9", place, "net9"},
		{"topology.istio.io/network", "net9", Place{}, "net9"},
		{"app", "web", place, "web"},
	} {
		own := map[string]string{c.name: c.own}
		if c.own == "-" {
			own = nil
		}
		l := Labels{own, c.place}
		value, ok := l.Lookup(c.name)
		if !ok {
			value = "-"
		}
		if value != c.want || ok && !l.Match(map[string]string{c.name: value}) || l.Match(map[string]string{c.name: "other"}) {
			t.Errorf("%s of a workload whose own is %q at %v: %q, want %q", c.name, c.own, c.place, value, c.want)
		}
	}
}
