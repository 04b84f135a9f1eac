package names

import "testing"

func TestEgressHosts(t *testing.T) {
	hosts := ParseEgressHosts([]string{
		"*/*.example.com", "./web", "b/API.b", "~b/*.b.example.com", "~/x.example.com", "~./y.example.com",
	}, "a")
	for _, c := range []struct {
		namespace, host           string
		covers, overlaps, without bool
	}{
		{"a", "web", true, true, false},
		{"b", "web", false, false, false},
		{"b", "api.b", true, true, false},
		{"c", "z.example.com", true, true, false},
		{"c", "*.com", false, true, false},
		{"c", "x.example.com", false, false, true},
		{"a", "y.example.com", false, false, true},
		{"b", "y.example.com", true, true, false},
		{"b", "z.b.example.com", false, false, true},
		{"c", "z.b.example.com", true, true, false},
		{"b", "*.z.b.example.com", false, false, true},
	} {
		if hosts.Covers(c.namespace, c.host) != c.covers || hosts.Overlaps(c.namespace, c.host) != c.overlaps ||
			hosts.Excludes(c.namespace, c.host) != c.without {
			t.Errorf("%s/%s: covered %v, overlapped %v, excluded %v", c.namespace, c.host,
				hosts.Covers(c.namespace, c.host), hosts.Overlaps(c.namespace, c.host), hosts.Excludes(c.namespace, c.host))
		}
	}
}
