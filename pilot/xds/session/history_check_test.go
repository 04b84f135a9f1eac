package session

import (
	"maps"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// mend returns a good version to all that is bad.
func (h *history) mend() {
	var edits []string
	for _, short := range slices.Sorted(maps.Keys(h.versions)) {
		for _, name := range slices.Sorted(maps.Keys(h.versions[short])) {
			if isBad(h.versions[short][name]) {
				edits = append(edits, short+" "+name+"=mended")
			}
		}
	}
	h.publish(true, edits...)
}

// finish lets everything arrive.
func (c *modelClient) finish() {
	c.offer()
	for range 10000 {
		if !c.request() && !c.serve() && !c.receive() {
			return
		}
	}
	c.h.t.Fatalf("%v: server and client never come to rest", c)
}

func (c *modelClient) check() {
	for _, short := range []string{"cds", "eds", "lds", "rds", "sds"} {
		t := xdstest.LongType(short)
		want := map[string]string{}
		if envoy.TypeOf(t).Complete {
			want = maps.Clone(c.h.versions[short])
		} else {
			for name := range c.subs[t] {
				switch version, ok := c.h.versions[short][name]; {
				case ok:
					want[name] = version
				case envoy.TypeOf(t).Total:
					want[name] = "none"
				case !c.delta: // it cannot be told, and keeps what it had
					want[name] = own(c.have[t][name])
				default:
					continue
				}
				if t == envoy.RouteType {
					want[name] = c.checkHosts(name, want[name])
				}
			}
		}
		for name, version := range want {
			have := own(c.have[t][name])
			if t == envoy.EndpointType {
				have, _, _ = strings.Cut(have, ".")
			}
			if !isBad(version) && have != version {
				c.h.t.Errorf("%v: %s %s is %q, want %q", c, short, name, c.have[t][name], version)
			}
		}
		for name := range c.have[t] {
			if _, ok := want[name]; !ok {
				c.h.t.Errorf("%v: %s %s is there and should not be", c, short, name)
			}
		}
	}
	for name := range c.warming {
		// A cluster that changed and changed back, with a stream that broke before its assignment came, cannot be told
		// from one that never changed: then the one that serves is what should, and its twin that warms does no harm. A
		// strict client may have been sent the assignment of a cluster that it did not take.
		if c.h.strict {
			break
		}
		if have := c.have[envoy.ClusterType][name]; have != "" && have != c.active[name] && c.h.versions["eds"][name] != "bad" {
			c.h.t.Errorf("%v: cluster %s is left warming", c, name)
		}
	}
}
