package xds

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/time/rate"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// A reader that stalls is cut at its connection, in time and alone.
func TestStalledReaderIsCut(t *testing.T) {
	l := limits.Default()
	l.SendGrace = 2 * time.Second
	r := newRig(t, func(o *Options) { o.Limits = l })
	r.publish(true, "cds a=1"+strings.Repeat("x", 8<<20))
	stalled := r.delta("stalled.a")
	healthy := r.delta("healthy.a")
	if _, err := healthy.stream.Recv(); err != nil {
		t.Fatal(err)
	}
	// gRPC takes one message whatever its size while it has quota left: the next one is stuck.
	eventually(t, "the first response has been made", func() bool { return sample(t, r.reg, "pilot_xds_pushes", "type", "cds") == 2 })
	r.publish(true, "cds a=2")
	healthy.expect("cds a=2")
	eventually(t, "the stalled one is gone", func() bool { c := r.server.Clients(); return len(c) == 1 && c[0].Proxy.ID == "healthy.a" })
	if n := sample(t, r.reg, "pilot_xds_write_timeout"); n != 1 {
		t.Errorf("pilot_xds_write_timeout is %v", n)
	}
	eventually(t, "its connection is closed", func() bool {
		r.server.listeners.mu.Lock()
		defer r.server.listeners.mu.Unlock()
		return len(r.server.listeners.conns) == 1
	})
	eventually(t, "the log says so", func() bool { return strings.Contains(r.log.String(), "closed=true") })
	r.publish(true, "cds a=3")
	healthy.expect("cds a=3")
	for {
		if _, err := stalled.stream.Recv(); err != nil {
			break
		}
	}
}

func TestRequestsThatEndTheStream(t *testing.T) {
	r := newRig(t)
	first := func(req *discoveryv3.DeltaDiscoveryRequest) codes.Code {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.dial().DeltaAggregatedResources(ctx)
		must.Succeed(t, err)
		_ = stream.Send(req) // the stream may have ended already: Recv says how
		_, err = stream.Recv()
		return status.Code(err)
	}
	if c := first(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("web.a"), TypeUrl: envoy.ClusterType}); c != codes.Unavailable {
		t.Errorf("before the first snapshot: %v", c)
	}
	r.publish(true, "cds a=1")
	for name, req := range map[string]*discoveryv3.DeltaDiscoveryRequest{
		"no node":    {TypeUrl: envoy.ClusterType},
		"empty id":   {TypeUrl: envoy.ClusterType, Node: &corev3.Node{}},
		"bad id":     {TypeUrl: envoy.ClusterType, Node: &corev3.Node{Id: "sidecar~web.a"}},
		"no type":    {Node: xdstest.Node("web.a")},
		"long type":  {Node: xdstest.Node("web.a"), TypeUrl: strings.Repeat("x", 1<<20)},
		"long name":  {Node: xdstest.Node("web.a"), TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: []string{strings.Repeat("x", 513)}},
		"many names": {Node: xdstest.Node("web.a"), TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: xdstest.Names(20001)},
	} {
		if c := first(req); c != codes.InvalidArgument {
			t.Errorf("%s: %v", name, c)
		}
	}
	if c := first(&discoveryv3.DeltaDiscoveryRequest{
		Node: xdstest.Node("web.a"), TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: xdstest.Names(20000),
	}); c != codes.OK {
		t.Errorf("as many names as may be: %v", c)
	}
	if c := first(
		&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node(strings.Repeat("x", 5<<20)), TypeUrl: envoy.ClusterType},
	); c != codes.ResourceExhausted {
		t.Errorf("a message that is too large: %v", c)
	}
	eventually(t, "all streams are gone", func() bool { return len(r.server.Clients()) == 0 })
	r.publish(true, "!join")
	if c := first(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("web.a"), TypeUrl: envoy.ClusterType}); c != codes.Internal {
		t.Errorf("a proxy that cannot be joined: %v", c)
	}
	if n := sample(t, r.reg, "pilot_total_xds_internal_errors"); n != 1 {
		t.Errorf("pilot_total_xds_internal_errors is %v", n)
	}
	r.server.Shutdown()
	if c := first(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("web.a"), TypeUrl: envoy.ClusterType}); c != codes.Unavailable {
		t.Errorf("after shutdown: %v", c)
	}
}

// A client that asks too often is held back, not cut.
func TestRequestsAreHeldBack(t *testing.T) {
	l := limits.Default()
	l.RequestsPerSecond, l.RequestsBurst = 100, 10
	r := newRig(t, func(o *Options) { o.Limits = l })
	r.publish(true, "cds a=1")
	c := r.delta("web.a")
	c.expect("cds a=1")
	start := time.Now()
	for i := range 60 {
		c.subscribe("eds", fmt.Sprint("n", i))
	}
	seen := 0
	for seen < 60 {
		m := c.receive()
		seen += len(m.Resources)
	}
	if d := time.Since(start); d < 400*time.Millisecond {
		t.Errorf("61 requests took %v at 100 a second after a burst of 10", d)
	}
}

// Streams beyond the bound wait; they are not refused.
func TestStreamsWait(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Streams = 1 })
	r.publish(true, "cds a=1")
	one := r.delta("one.a")
	one.expect("cds a=1")
	two := r.delta("two.a")
	eventually(t, "it waits", func() bool { return sample(t, r.reg, "pilot_xds_waiting_streams", "for", "stream") == 1 })
	if n := len(r.server.Clients()); n != 1 {
		t.Fatalf("%d streams are served", n)
	}
	one.cancel()
	two.expect("cds a=1")
}

// A translation that hangs holds its slots, but neither Publish nor what needs no translation.
func TestPublishNeverWaits(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Translations = 1 })
	r.fake.Block = make(chan struct{})
	release := sync.OnceFunc(func() { close(r.fake.Block) })
	defer release() // the server stops only then
	r.publish(true, "cds a=1")
	one := r.delta("one.a")
	eventually(t, "the only slot is taken", func() bool { return r.fake.Count("join") == 1 })
	two := r.delta("two.a")
	for i := range 1000 {
		r.publish(true, fmt.Sprint("cds a=", i+2))
	}
	release()
	for _, c := range []*deltaClient{one, two} {
		for last := ""; last != "1001"; {
			m := c.receive()
			last = m.Resources[0].Version
		}
	}
}

// What a proxy says of itself may be a megabyte; a connected stream keeps a few facts.
func TestNodeIsNotKept(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	const streams = 20
	var clients []*deltaClient
	before := xdstest.Heap()
	for i := range streams {
		n := xdstest.Node(fmt.Sprintf("web%d.a", i))
		for j := range 16 {
			n.Metadata.Fields[fmt.Sprint("FILL", j)] = structpb.NewStringValue(strings.Repeat(fmt.Sprint(i%10), 64<<10))
		}
		for j := range 516 {
			n.Extensions = append(
				n.Extensions, &corev3.Extension{Name: fmt.Sprintf("envoy.filters.http.number_%d", j), Category: "envoy.filters.http"},
			)
		}
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		stream, err := r.dial().DeltaAggregatedResources(ctx)
		must.Succeed(t, err)
		c := &deltaClient{t, stream, cancel}
		c.send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: envoy.ClusterType})
		c.expect("cds a=1")
		clients = append(clients, c)
	}
	after := xdstest.Heap()
	if a := int64(after) - int64(before); a > streams*300<<10 {
		t.Errorf("%d streams with nodes of 1 MB keep %d kB each, both ends", len(clients), a/streams>>10)
	}
	runtime.KeepAlive(clients)
}

// TestClientLeavesAtOnce: a client that says nothing and goes is no fault of anybody's.
func TestClientLeavesAtOnce(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	client := r.dial()
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := client.StreamAggregatedResources(ctx)
		must.Succeed(t, err)
		must.Succeed(t, stream.CloseSend())
		_, _ = stream.Recv() // until the server has ended it
		cancel()
	}
	r.delta("web-0.a").expect("cds a=1")
	if log := r.log.String(); strings.Count(log, "\n") > 1 { // the one who said something
		t.Errorf("logged: %.500s", log)
	}
}

// TestGoneClustersAreRemovedWhileEndpointsChange: a client that resumes has the clusters removed that are gone, though
// it is sent something and acknowledges it all the time.
func TestGoneClustersAreRemovedWhileEndpointsChange(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "eds a=1")
	c := r.resumed("web.a", map[string]string{"a": "1", "gone": "1"})
	c.subscribe("eds", "a")
	deadline := time.Now().Add(resumeMax - 2*time.Second)
	for i := 2; time.Now().Before(deadline); i++ {
		m := c.receive()
		if len(m.RemovedResources) > 0 {
			return
		}
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
		time.Sleep(resumeQuiet / 4)
		r.publish(false, fmt.Sprintf("eds a=%d", i))
	}
	t.Error("the client still has a cluster that is gone")
}

// TestLogOfClientFaultsIsBounded: clients that do nothing but wrong, on one stream or on ever new ones, are in the log,
// and do not fill it.
func TestLogOfClientFaultsIsBounded(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	c := r.delta("web.a")
	c.expect("cds a=1")
	const n = 1000
	for range n {
		c.send(&discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: envoy.ClusterType, ResponseNonce: "x", ErrorDetail: &rpcstatus.Status{Code: 13, Message: "no"},
		})
	}
	eventually(t, "all are counted", func() bool { return sample(t, r.reg, "pilot_total_xds_rejects", "type", "cds") == n })
	if lines := strings.Count(r.log.String(), "rejected a response"); lines == 0 || lines > n/4 {
		t.Errorf("%d of %d rejections are in the log", lines, n)
	}
	all := r.server.warnings
	all.mu.Lock()
	all.limiter = rate.NewLimiter(0, 0) // others have logged all that they may
	all.mu.Unlock()
	fresh := newConn(r.server, r.server.streams()[0].stream, true, identity.Peer{})
	logged := 0
	write := func(string, ...any) { logged++ }
	if all.log(write, fresh.warnings, "another"); logged > 0 {
		t.Error("a line of a new stream is logged, though there were too many of others")
	}
	all.mu.Lock()
	all.limiter = rate.NewLimiter(20, 500)
	all.mu.Unlock()
	write = func(_ string, args ...any) { logged = args[len(args)-1].(int) }
	if all.log(write, nil, "another"); logged < n/2 {
		t.Errorf("a line says that %d before it were left out", logged)
	}
	write = func(_ string, args ...any) {
		if len(args) > 0 {
			t.Errorf("a line says that none were left out: %v", args)
		}
	}
	all.log(write, nil, "another")
}
