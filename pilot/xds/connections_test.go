package xds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// witness records its notifications.
type witness struct {
	mu      sync.Mutex
	seen    []string
	changed chan struct{} // closed and made anew at each entry
	connect func(context.Context, Client) error
}

func newWitness() *witness { return &witness{changed: make(chan struct{})} }

func (w *witness) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, fmt.Sprintf(format, args...))
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *witness) Connected(ctx context.Context, c Client) error {
	w.note("connected %s", c.Proxy.ID)
	if w.connect != nil {
		return w.connect(ctx, c)
	}
	return nil
}

func (w *witness) Disconnected(c Client) { w.note("disconnected %s", c.Proxy.ID) }

func (w *witness) Health(c Client, healthy bool, message string) {
	w.note("%s %v %s", c.Proxy.ID, healthy, message)
}

// want waits until exactly these entries have been made.
func (w *witness) want(t *testing.T, entries ...string) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		w.mu.Lock()
		seen, changed := slices.Clone(w.seen), w.changed
		w.mu.Unlock()
		if slices.Equal(seen, entries) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("told of %q, want %q", seen, entries)
		}
	}
}

func TestConnectionsAreToldOfStreamsAndHealth(t *testing.T) {
	w := newWitness()
	r := newRig(t, func(o *Options) { o.Connections = w })
	r.publish(true, "cds a=1")
	c := r.delta("p.a")
	c.expect("cds a=1")
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: healthType})
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: healthType, ErrorDetail: &rpcstatus.Status{Message: "no database"}})
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: healthType})
	w.want(t, "connected p.a", "p.a true ", "p.a false no database", "p.a true ")
	for _, client := range r.server.Clients() {
		if _, ok := client.Types[healthType]; ok {
			t.Error("a report of health counts as a subscription")
		}
	}
	// The next response is of the snapshot: reports are not answered.
	r.publish(true, "cds a=2")
	c.expect("cds a=2")
	c.cancel()
	w.want(t, "connected p.a", "p.a true ", "p.a false no database", "p.a true ", "disconnected p.a")
}

func TestHealthWithoutAnybodyToTell(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	c := r.delta("p.a")
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: healthType})
	c.expect("cds a=1")
}

func TestConnectionsMayRefuse(t *testing.T) {
	w := newWitness()
	w.connect = func(context.Context, Client) error { return status.Error(codes.FailedPrecondition, "no such group") }
	r := newRig(t, func(o *Options) { o.Connections = w })
	r.publish(true, "cds a=1")
	_, err := r.delta("p.a").stream.Recv()
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "no such group") {
		t.Errorf("the stream ended with %v", err)
	}
	r.server.Shutdown()
	w.want(t, "connected p.a") // and never disconnected
}

func TestAPanicInConnectionsEndsTheStreamOnly(t *testing.T) {
	w := newWitness()
	w.connect = func(_ context.Context, c Client) error {
		if c.Proxy.ID == "bad.a" {
			panic("bad proxy")
		}
		return nil
	}
	r := newRig(t, func(o *Options) { o.Connections = w })
	r.publish(true, "cds a=1")
	if _, err := r.delta("bad.a").stream.Recv(); err == nil || strings.Contains(err.Error(), "bad proxy") {
		t.Errorf("the stream ended with %v", err)
	}
	r.delta("p.a").expect("cds a=1")
}

func TestConnectingBlocksNobodyElseAndEndsWithItsStream(t *testing.T) {
	for _, how := range []string{"client", "disconnect", "shutdown"} {
		t.Run(how, func(t *testing.T) {
			w := newWitness()
			w.connect = func(ctx context.Context, c Client) error {
				if c.Proxy.ID == "slow.a" {
					<-ctx.Done()
				}
				return nil // though too late: it has to be notified of the end
			}
			r := newRig(t, func(o *Options) { o.Connections = w })
			r.publish(true, "cds a=1")
			slow := r.delta("slow.a")
			w.want(t, "connected slow.a")
			r.delta("p.a").expect("cds a=1")
			r.publish(true, "cds a=2")
			if n := len(r.server.Clients()); n != 2 {
				t.Errorf("%d streams, want both", n)
			}
			seen := []string{"connected slow.a", "connected p.a"}
			w.want(t, seen...)
			switch how {
			case "client":
				slow.cancel()
			case "disconnect":
				r.server.Disconnect("slow.a")
			case "shutdown":
				r.server.Disconnect("p.a")
				seen = append(seen, "disconnected p.a")
				w.want(t, seen...)
				r.server.Shutdown()
			}
			w.want(t, append(seen, "disconnected slow.a")...)
		})
	}
}

func TestFirstAnswerWaitsForTheWorkload(t *testing.T) {
	var asked atomic.Int64
	r := newRig(t, func(o *Options) {
		o.World = knowing{known: func(s *snapshot.Snapshot, p *node.Proxy) bool {
			asked.Add(1)
			return p.ID == "known.a" || p.ID == "new.a" && s.Revision >= 2
		}}
	})
	r.server.podWait = time.Hour
	r.publish(true, "cds a=1")
	fresh := r.delta("new.a")
	for asked.Load() < 1 { // the stream has looked at the first snapshot
		time.Sleep(time.Millisecond)
	}
	r.delta("known.a").expect("cds a=1")
	r.publish(false, "cds a=2")
	fresh.expect("cds a=2")
	r.server.podWait = time.Millisecond
	unknown := r.delta("unknown.a")
	unknown.expect("cds a=2")
	const waits = "pilot_xds_waits_for_pod"
	if found, timeout := sample(t, r.reg, waits, "result", "found"), sample(t, r.reg, waits, "result", "timeout"); found != 1 || timeout != 1 {
		t.Errorf("%v waits found, %v in vain", found, timeout)
	}
	// From now on nothing waits.
	r.publish(true, "cds a=3")
	for _, c := range []*deltaClient{unknown, fresh} {
		c.expect("cds a=3")
	}
}

// While the cluster of a proxy is yet to be read, and then until there is a snapshot of it, the proxy keeps what it
// brings; one that brings nothing is answered.
func TestWhoResumesWaitsForItsCluster(t *testing.T) {
	var late, asked atomic.Int64
	late.Store(1)
	r := newRig(t, func(o *Options) {
		o.World = knowing{known: func(s *snapshot.Snapshot, _ *node.Proxy) bool { return s.Revision >= 3 }, pending: func(*node.Proxy) bool {
			asked.Add(1)
			return late.Load() != 0
		}}
	})
	r.publish(true, "cds a=1")
	old, fresh := r.resumed("old.a", map[string]string{"a": "0"}), r.delta("fresh.a")
	fresh.expect("cds a=1")
	for asked.Load() < 2 { // it was asked again
		time.Sleep(time.Millisecond)
	}
	r.publish(true, "cds a=2")
	fresh.expect("cds a=2")
	late.Store(0)
	before := asked.Load()
	eventually(t, "it was asked again", func() bool { return asked.Load() > before+1 })
	r.publish(true, "cds a=3")
	old.expect("cds a=3")
}

// TestNewsWhileConnecting: news of the workload that came while the stream was being introduced is not waited for
// again.
func TestNewsWhileConnecting(t *testing.T) {
	w := newWitness()
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release() // the server stops only then
	w.connect = func(context.Context, Client) error { <-held; return nil }
	r := newRig(t, func(o *Options) {
		o.Connections = w
		o.World = knowing{known: func(s *snapshot.Snapshot, _ *node.Proxy) bool { return s.Revision >= 2 }}
	})
	r.publish(true, "cds a=1")
	c := r.delta("new.a")
	w.want(t, "connected new.a")
	r.publish(true, "cds a=2")
	eventually(t, "the owner has been woken", func() bool { all := r.server.streams(); return len(all) == 1 && len(all[0].wake) == 0 })
	release()
	c.expect("cds a=2")
	if n := testutil.ToFloat64(r.server.metrics.workloadTimeouts); n != 0 {
		t.Error("it waited until it was late")
	}
}
