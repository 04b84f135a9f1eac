package xds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// TestProgressMissesNoPush publishes while clients are late, change their groups, break off and resume, and while
// others ask. Whenever a revision is said to be in force, each client has acknowledged what it changed, as of it or of
// a later one. In the end everything is in force.
func TestProgressMissesNoPush(t *testing.T) {
	const clients, revisions = 6, 150
	r := newRig(t)
	r.fake.Still.Store(true)
	r.publish(true, "cds a=1", "eds a=1", "eds b=1")
	list := make([]*lateClient, clients)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range list {
		c := &lateClient{rig: r, pod: fmt.Sprintf("p%d.a", i), r: rand.New(rand.NewPCG(uint64(i), 7))} //nolint:gosec // small
		list[i] = c
		running.Go(func() { c.run(ctx) })
	}
	defer running.Wait()
	defer cancel()
	for _, c := range list {
		eventually(t, "it has its first configuration", func() bool { return c.acked.Load() > 0 })
	}
	var versions [revisions + 2]uint64 // of the cluster, by revision; written before the revision is published
	var published atomic.Uint64
	asked := make(chan struct{})
	var found int
	go func() {
		defer close(asked)
		for n := published.Load(); n < revisions; n = published.Load() {
			if n == 0 {
				continue
			}
			for _, upto := range []bool{false, true} {
				p := r.server.Progress(n, upto, 3)
				if !p.InForce() || !upto && versions[n] == versions[n-1] { // it did not change the cluster
					continue
				}
				found++
				for _, c := range list {
					if is := c.acked.Load(); is < versions[n] {
						t.Errorf("revision %d (up to: %t) is said to be in force, and %s has %d of %d", n, upto, c.pod, is, versions[n])
						return
					}
				}
			}
		}
	}()
	x := rand.New(rand.NewPCG(1, 2))
	version := uint64(1)
	versions[1] = version
	for n := uint64(2); n <= revisions; n++ {
		var edits []string
		full := true
		switch x.IntN(4) {
		case 0, 1:
			version++
			edits = []string{fmt.Sprintf("cds a=%d", version)}
		case 2:
			full, edits = false, []string{fmt.Sprintf("eds %s=%d", []string{"a", "b", "nobody"}[x.IntN(3)], n)}
		}
		versions[n] = version
		r.publish(full, edits...)
		published.Store(n)
		time.Sleep(time.Duration(x.IntN(15)) * time.Millisecond)
	}
	<-asked
	if t.Failed() {
		return
	}
	eventually(t, "everything is in force", func() bool {
		p := r.server.Progress(revisions, true, 3)
		return p.InForce() && p.Connected == clients
	})
	for _, c := range list {
		if is := c.acked.Load(); is != version {
			t.Errorf("%s has %d of %d", c.pod, is, version)
		}
	}
	if found == 0 {
		t.Error("nothing was in force before the end")
	}
}

// lateClient is a client that takes its time.
type lateClient struct {
	rig   *rig
	pod   string
	r     *rand.Rand
	acked atomic.Uint64 // version of the cluster that it has; set before it says so
}

func (c *lateClient) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.stream(ctx)
	}
}

// stream is one stream, which breaks at some time.
func (c *lateClient) stream(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rig.dial().DeltaAggregatedResources(ctx)
	must.Succeed(c.rig.t, err)
	first := &discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node(c.pod), TypeUrl: envoy.ClusterType}
	if v := c.acked.Load(); v > 0 {
		first.InitialResourceVersions = map[string]string{"a": strconv.FormatUint(v, 10)}
	}
	send := func(m *discoveryv3.DeltaDiscoveryRequest) bool { return stream.Send(m) == nil }
	names := map[string]bool{}
	for ok := send(first); ok; {
		m, err := stream.Recv()
		if err != nil {
			return
		}
		switch c.r.IntN(300) / 10 {
		case 0:
			if c.r.IntN(10) == 0 {
				return // it breaks off before it has taken the response
			}
		case 1, 2, 3:
			time.Sleep(time.Duration(c.r.IntN(10)) * time.Millisecond)
		case 4, 5:
			name := []string{"a", "b"}[c.r.IntN(2)]
			change := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType}
			if names[name] {
				change.ResourceNamesUnsubscribe = []string{name}
			} else {
				change.ResourceNamesSubscribe = []string{name}
			}
			names[name] = !names[name]
			ok = send(change)
		}
		for _, x := range m.Resources {
			if m.TypeUrl == envoy.ClusterType {
				v, _, _ := strings.Cut(x.Version, ".")
				n, _ := strconv.ParseUint(v, 10, 64)
				c.acked.Store(n)
			}
		}
		ok = ok && send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
	}
}
