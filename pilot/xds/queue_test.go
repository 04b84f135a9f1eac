package xds

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// Gateways and proxies that start do not wait behind the others; those wait for each other.
func TestGatewaysAndNewProxiesGoFirst(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Translations = 1 })
	r.server.newcomer = 0
	r.publish(true, "cds a=1")
	slow, other := r.delta("slow.a"), r.delta("other.a")
	gateway := r.as(&corev3.Node{Id: "router~10.0.0.2~gw.a~a.svc.cluster.local"})
	for _, c := range []*deltaClient{slow, other, gateway} {
		c.expect("cds a=1")
	}
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release() // the server stops only then
	r.fake.Held.Store("slow.a", held)
	joins := r.fake.Count("join")
	all := r.server.streams()
	slowly := all[slices.IndexFunc(all, func(c *conn) bool { return c.proxy.ID == "slow.a" })]
	r.server.mu.Lock()
	p := session.NewPush(r.fake.Publish(true, "cds a=2"), slowly.connected)
	r.server.latest = p.Snapshot
	r.server.mu.Unlock()
	slowly.offer(p)
	eventually(t, "the slot is taken", func() bool { return r.fake.Count("join") > joins })
	r.publish(true, "cds a=3")
	gateway.expect("cds a=3")
	r.delta("new.a").expect("cds a=3")
	if n := len(r.server.slots); n != 1 {
		t.Fatalf("%d slots are taken, want the one", n)
	}
	got := make(chan string, 1)
	var wait sync.WaitGroup
	wait.Go(func() {
		m, err := other.stream.Recv()
		if err != nil {
			got <- err.Error()
			return
		}
		got <- m.Resources[0].Version
	})
	select {
	case v := <-got:
		t.Errorf("an ordinary stream was sent %s while the slot was taken", v)
	default:
	}
	release()
	if v := <-got; v != "3" {
		t.Errorf("the ordinary stream was sent %s", v)
	}
	wait.Wait()
}

// TestTurns checks that of an identity with many streams only a few wait for a slot at a time, so that a stream of
// another identity waits behind no more than these.
func TestTurns(t *testing.T) {
	r := newRig(t, accounts(1000), func(o *Options) { o.Translations = 1 })
	r.server.newcomer = 0
	r.publish(true, "cds a=1")
	for range 20 {
		if _, err := r.firstOf("flood"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.firstOf("web"); err != nil {
		t.Fatal(err)
	}
	waiting := func(account string) int {
		turns, release := r.server.turns.Hold(identity.Holder{ID: identity.ID{TrustDomain: "cluster.local", Namespace: "a",
			ServiceAccount: account}})
		defer release()
		return len(turns)
	}
	eventually(t, "nobody waits", func() bool { return waiting("flood")+waiting("web") == 0 })
	r.server.slots <- struct{}{}
	r.server.Push()
	eventually(t, "two streams of the one and the stream of the other wait",
		func() bool { return waiting("flood") == 2 && waiting("web") == 1 })
	<-r.server.slots
	eventually(t, "all have had their turn", func() bool { return waiting("flood")+waiting("web") == 0 && len(r.server.slots) == 0 })
	r.publish(true, "cds a=2")
	eventually(t, "all are sent the next version", func() bool { return sample(t, r.reg, "pilot_xds_pushes", "type", "cds") == 42 })
}

// as is the stream of a proxy that says of itself what a test wants.
func (r *rig) as(n *corev3.Node) *deltaClient {
	r.t.Helper()
	stream, err := r.dial().DeltaAggregatedResources(r.t.Context())
	must.Succeed(r.t, err)
	c := &deltaClient{t: r.t, stream: stream}
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: envoy.ClusterType})
	return c
}

// All that connect at once are served, however few translations run at a time: none is refused.
func TestConnectStorm(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Translations, o.Streams = 1, 50 })
	r.publish(true, "cds a=1"+strings.Repeat("x", 1<<10), "eds a=1", "lds l=1", "rds r=1")
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			stream, err := r.dial().DeltaAggregatedResources(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for j, short := range []string{"cds", "eds", "lds", "rds"} {
				m := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: xdstest.LongType(short)}
				switch short {
				case "cds":
					m.Node = xdstest.Node(fmt.Sprintf("p%d.a", i))
				case "eds":
					m.ResourceNamesSubscribe = []string{"a"}
				case "rds":
					m.ResourceNamesSubscribe = []string{"r"}
				}
				if err := stream.Send(m); err != nil {
					t.Error(err)
					return
				}
				if got, err := stream.Recv(); err != nil || got.TypeUrl != m.TypeUrl {
					t.Errorf("proxy %d, response %d: %v %v", i, j, got.GetTypeUrl(), err)
					return
				}
			}
			if err := stream.CloseSend(); err != nil { // it makes room
				t.Error(err)
			}
		})
	}
	all.Wait()
}
