package xds

import (
	"fmt"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// progress describes the Progress of a revision in short: how many have it in force of how many, and who has not.
func (r *rig) progress(revision uint64) string {
	p := r.server.Progress(revision, false, 10)
	out := fmt.Sprintf("%d of %d", p.Settled, p.Concerned)
	if !p.Published {
		out += " unpublished"
	}
	if p.Unknown {
		out += " unknown"
	}
	for _, o := range p.Owing {
		out += fmt.Sprintf(" %s %s", o.Proxy, map[OwingState]string{Behind: "behind", Rejected: "rejected", Departed: "departed",
			Silent: "silent"}[o.State])
		if o.Type != "" {
			out += " " + o.Type + ": " + o.Message
		}
	}
	return out
}

// becomes waits until the Progress of a revision is as wanted.
func (r *rig) becomes(revision uint64, want string) {
	r.t.Helper()
	got := ""
	eventually(r.t, fmt.Sprintf("revision %d is %q", revision, want), func() bool {
		got = r.progress(revision)
		return got == want
	})
}

// stays fails the test if the Progress of a revision is not as wanted after a moment.
func (r *rig) stays(revision uint64, want string) {
	r.t.Helper()
	r.becomes(revision, want)
	time.Sleep(20 * time.Millisecond)
	if got := r.progress(revision); got != want {
		r.t.Errorf("revision %d: %q, want %q", revision, got, want)
	}
}

func (c *deltaClient) reject(m *discoveryv3.DeltaDiscoveryResponse, why string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: &rpcstatus.Status{Code: 13, Message: why},
	})
}

// TestProgress: a revision is in force when each client that it concerns has acknowledged what it was sent because of
// it. A client that it does not concern, and one that connects later, do not count.
func TestProgress(t *testing.T) {
	r := newRig(t)
	r.fake.Still.Store(true)
	r.publish(true, "cds a=1", "eds a=1", "eds b=1")
	if got := r.progress(7); got != "0 of 0 unpublished" {
		t.Errorf("a revision to come: %q", got)
	}
	left, right := r.delta("left.a"), r.delta("right.a")
	for c, name := range map[*deltaClient]string{left: "a", right: "b"} {
		c.acknowledge(c.expect("cds a=1"))
		c.subscribe("eds", name)
		c.acknowledge(c.expect("eds " + name + "=1"))
	}
	r.grouped("a", "b")
	r.stays(1, "0 of 0")
	for range 2 { // a new group knows nothing yet
		r.publish(false, "eds nobody=1")
		r.checked()
	}
	r.publish(false, "eds a=2") // 4
	r.stays(4, "0 of 1 left.a behind")
	m := left.expect("eds a=2")
	r.stays(4, "0 of 1 left.a behind")
	r.publish(false, "eds b=2") // 5
	r.stays(5, "0 of 1 right.a behind")
	left.acknowledge(m)
	r.stays(4, "1 of 1")
	if p := r.server.Progress(5, true, 0); p.Settled != 1 || p.Concerned != 2 || p.More != 1 || p.InForce() || p.Connected != 2 {
		t.Errorf("up to revision 5: %+v", p)
	}
	right.acknowledge(right.expect("eds b=2"))
	r.stays(5, "1 of 1")
	r.publish(true, "cds a=2") // 6
	r.stays(6, "0 of 2 left.a behind right.a behind")
	for _, c := range []*deltaClient{left, right} {
		c.acknowledge(c.expect("cds a=2"))
	}
	left.acknowledge(left.expect("eds a=2")) // its cluster warms
	r.stays(6, "2 of 2")
	r.publish(true, "cds a") // 7
	for _, c := range []*deltaClient{left, right} {
		m := c.expect("cds -a")
		r.stays(7, map[*deltaClient]string{left: "0 of 2 left.a behind right.a behind", right: "1 of 2 right.a behind"}[c])
		if c == left {
			c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesUnsubscribe: []string{"a"}})
		}
		c.acknowledge(m)
	}
	r.stays(7, "2 of 2")
	eventually(t, "it is connected", func() bool {
		got := r.server.Connected([]string{"left.a", "gone.a"})
		return len(got) == 1 && got[0] == "left.a"
	})
}

// TestProgressBeforeTheFirstConfiguration: a client that waits for its first configuration, while a newer one is there,
// is sent the older one first.
func TestProgressBeforeTheFirstConfiguration(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	for range cap(r.server.slots) {
		r.server.slots <- struct{}{}
	}
	c := r.silent()
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("web.a"), TypeUrl: envoy.ClusterType})
	eventually(t, "the client is connected", func() bool { return r.server.Progress(1, false, 0).Connected == 1 })
	r.publish(true, "cds a=2")
	r.stays(2, "0 of 1 web.a behind")
	for range cap(r.server.slots) {
		<-r.server.slots
	}
	m := c.receive()
	r.stays(2, "0 of 1 web.a behind")
	c.acknowledge(m)
	c.acknowledge(c.receive())
	r.stays(2, "1 of 1")
}

// TestProgressWaitsForNewNames: a revision is in force only when what the client newly subscribes to because of it is
// answered and acknowledged too.
func TestProgressWaitsForNewNames(t *testing.T) {
	r := newRig(t)
	r.fake.Refers.Store(true)
	r.publish(true, "lds l=1")
	c := r.silent()
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("web.a"), TypeUrl: envoy.ListenerType})
	c.acknowledge(c.receive())
	r.publish(true, "lds l=2.r", "rds r=1")
	c.acknowledge(c.receive())
	r.stays(2, "0 of 1 web.a behind rds: it awaits r: the client has not asked for it yet")
	c.subscribe("rds", "r")
	m := c.expect("rds r=1")
	r.stays(2, "0 of 1 web.a behind rds: it awaits r: the client has not acknowledged it yet")
	r.publish(true, "lds l=3.s", "rds s=1") // what was awaited is replaced
	later := c.receive()
	c.acknowledge(m)
	r.stays(2, "1 of 1")
	c.acknowledge(later)
	r.stays(3, "0 of 1 web.a behind rds: it awaits s: the client has not asked for it yet")
	c.subscribe("rds", "s")
	c.acknowledge(c.expect("rds s=1"))
	r.stays(3, "1 of 1")
}

// TestProgressOfRejections: a client that rejects a resource does not have the revision in force until it has
// acknowledged a later version. Other revisions are not affected.
func TestProgressOfRejections(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "cds b=1", "lds l=1")
	c := r.delta("web.a")
	c.acknowledge(c.expect("cds a=1 b=1"))
	c.subscribe("lds")
	c.acknowledge(c.expect("lds l=1"))
	r.publish(true, "cds a=bad", "cds b=2") // 2
	c.reject(c.expect("cds a=bad b=2"), "no")
	r.becomes(2, "0 of 1 web.a rejected cds: no")
	c.reject(c.expect("cds a=bad"), "never")
	c.acknowledge(c.expect("cds b=2"))
	r.stays(2, "0 of 1 web.a rejected cds: never")
	if n := sample(t, r.reg, "pilot_xds_proxies_behind", "state", "rejected"); n != 0 {
		t.Errorf("%v proxies have rejected something for long", n)
	}
	r.server.mu.Lock()
	r.server.lagTime = 0
	r.server.mu.Unlock()
	for state, want := range map[string]float64{"rejected": 1, "behind": 0} {
		if n := sample(t, r.reg, "pilot_xds_proxies_behind", "state", state); n != want {
			t.Errorf("%v proxies are %s, want %v", n, state, want)
		}
	}
	r.publish(true, "lds l=2") // 3
	c.acknowledge(c.expect("lds l=2"))
	r.stays(3, "1 of 1")
	r.publish(true, "cds a=3") // 4
	m := c.expect("cds a=3")
	r.stays(2, "0 of 1 web.a rejected cds: never")
	c.acknowledge(m)
	r.stays(2, "1 of 1")
	r.stays(4, "1 of 1")
	r.publish(true, "cds a=bad") // 5: it is not sent again
	r.stays(5, "0 of 1 web.a rejected cds: never")
}
