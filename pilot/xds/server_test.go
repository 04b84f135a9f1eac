package xds

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// rig is a Server on loopback with its fake Translator.
type rig struct {
	t      *testing.T
	fake   *xdstest.Translator
	server *Server
	reg    *prometheus.Registry
	addr   string
	peers  *xdstest.Peers // nil: the port is plaintext
	log    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRig(t *testing.T, edit ...func(*Options)) *rig { return newSecureRig(t, nil, edit...) }

// newSecureRig is newRig for clients that are some peers.
func newSecureRig(t *testing.T, peers *xdstest.Peers, edit ...func(*Options)) *rig {
	t.Helper()
	// Registered first, so that it runs when all else has been closed.
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaks.None(t, ignore) })
	r := &rig{t: t, fake: xdstest.NewTranslator(), reg: prometheus.NewRegistry(), peers: peers, log: &lockedBuffer{}}
	o := Options{Translator: r.fake, Metrics: r.reg, Logger: slog.New(slog.NewTextHandler(r.log, nil)), Identifier: `{"Component":"istiod"}`}
	if peers != nil {
		o.Authenticate = peers.Authenticate
	}
	for _, e := range edit {
		e(&o)
	}
	r.server = New(o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	r.addr = l.Addr().String()
	options := []grpc.ServerOption{grpc.ForceServerCodecV2(wire.Codec()), grpc.MaxRecvMsgSize(limits.Default().RecvMessage)}
	if peers != nil {
		options = append(options, grpc.Creds(peers.Server()))
	}
	g := grpc.NewServer(options...)
	r.server.Register(g)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(r.server.Listen(l)) // ends with Stop
	}()
	t.Cleanup(func() {
		r.server.Shutdown()
		g.Stop()
		<-served
		if n := len(r.server.listeners.conns); n != 0 {
			t.Errorf("%d closed connections are still kept", n)
		}
	})
	return r
}

func (r *rig) publish(full bool, edits ...string) {
	s := r.fake.Publish(full, edits...)
	s.Diff.Received = time.Now()
	r.server.Publish(s)
}

func (r *rig) dial() discoveryv3.AggregatedDiscoveryServiceClient {
	r.t.Helper()
	return r.dialWith(insecure.NewCredentials())
}

// dialAs connects as one of the peers.
func (r *rig) dialAs(peer int) discoveryv3.AggregatedDiscoveryServiceClient {
	r.t.Helper()
	return r.dialWith(r.peers.Client(peer))
}

func (r *rig) dialWith(c credentials.TransportCredentials) discoveryv3.AggregatedDiscoveryServiceClient {
	r.t.Helper()
	cc, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(c), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	must.Succeed(r.t, err)
	r.t.Cleanup(func() { _ = cc.Close() })
	return discoveryv3.NewAggregatedDiscoveryServiceClient(cc)
}

// deltaClient is a delta stream whose responses are read only when asked for.
type deltaClient struct {
	t      *testing.T
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel context.CancelFunc
}

func (r *rig) delta(pod string) *deltaClient {
	r.t.Helper()
	return r.resumed(pod, nil)
}

// resumed is the stream of a client that brings clusters from an earlier one.
func (r *rig) resumed(pod string, versions map[string]string) *deltaClient {
	r.t.Helper()
	c := r.silent()
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node(pod), TypeUrl: envoy.ClusterType, InitialResourceVersions: versions})
	return c
}

// silent is the stream of a client that has not said anything yet. It has keys and values as metadata.
func (r *rig) silent(keysAndValues ...string) *deltaClient {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(r.t.Context(), keysAndValues...), 2*time.Minute)
	r.t.Cleanup(cancel)
	stream, err := r.dial().DeltaAggregatedResources(ctx)
	must.Succeed(r.t, err)
	return &deltaClient{r.t, stream, cancel}
}

func (c *deltaClient) send(r *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	must.Succeed(c.t, c.stream.Send(r))
}

func (c *deltaClient) subscribe(short string, names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xdstest.LongType(short), ResourceNamesSubscribe: names})
}

// receive returns the next response.
func (c *deltaClient) receive() *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	m, err := c.stream.Recv()
	must.Succeed(c.t, err)
	return m
}

func (c *deltaClient) expect(want string) *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("want %q, got %v", want, err)
	}
	got := envoy.ShortType(m.TypeUrl)
	for _, x := range m.Resources {
		version := x.Version
		if m.TypeUrl == envoy.EndpointType {
			version, _, _ = strings.Cut(version, ".") // without its cluster's
		}
		got += " " + x.Name + "=" + version
		if !envoy.TypeOf(m.TypeUrl).Secret && string(x.Resource.Value) != x.Name+"="+version && len(x.Resource.Value) < 100 {
			c.t.Fatalf("resource %v", x)
		}
	}
	for _, name := range m.RemovedResources {
		got += " -" + name
	}
	if got != want {
		c.t.Fatalf("got %q, want %q", got, want)
	}
	return m
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

func TestServerDelta(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "eds a=1", "lds l=1", "rds r=1")
	c := r.delta("web.a")
	m := c.expect("cds a=1")
	if m.ControlPlane.GetIdentifier() != `{"Component":"istiod"}` {
		t.Errorf("control plane is %v", m.ControlPlane)
	}
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, ResponseNonce: m.Nonce})
	c.subscribe("eds", "a", "b")
	c.expect("eds a=1 b=none")
	c.subscribe("lds")
	m = c.expect("lds l=1")
	c.send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: envoy.ListenerType, ResponseNonce: m.Nonce, ErrorDetail: &rpcstatus.Status{Code: 13, Message: "no such filter"},
	})
	c.subscribe("rds", "r")
	c.expect("rds r=1")
	r.publish(true, "cds a", "cds b=1", "lds l=2")
	c.expect("cds b=1")
	c.expect("eds b=none")
	c.expect("lds l=2")
	c.expect("cds -a")

	eventually(t, "the debug view is complete", func() bool {
		clients := r.server.Clients()
		return len(clients) == 1 && clients[0].Types[envoy.ClusterType].Sent != "" && clients[0].Types[envoy.ListenerType].LastError != ""
	})
	client := r.server.Clients()[0]
	if client.ID != "web.a-1" || client.Proxy.ID != "web.a" || !client.Delta || client.Address == "" || client.Connected.IsZero() {
		t.Errorf("client %+v", client)
	}
	cds, lds := client.Types[envoy.ClusterType], client.Types[envoy.ListenerType]
	if cds.Acked == "" || cds.AckedAt.IsZero() || cds.Acked == cds.Sent || !cds.Wildcard || cds.SentAt.IsZero() ||
		client.Types[envoy.EndpointType].Names != 2 {
		t.Errorf("clusters: %+v", cds)
	}
	if lds.LastError != "Internal: no such filter" || lds.Acked != "" {
		t.Errorf("listeners: %+v", lds)
	}
	dump, ok := r.server.Dump("web.a", envoy.ClusterType)
	if !ok || len(dump) != 1 || dump[0].Name != "b" {
		t.Errorf("dump: %v %v", dump, ok)
	}
	if _, ok := r.server.Dump("web.a", envoy.SecretType); ok {
		t.Error("a type that was never asked for was dumped")
	}
	if _, ok := r.server.Dump("nobody.a", envoy.ClusterType); ok {
		t.Error("a proxy that is not there was dumped")
	}
	if got := strings.Count(r.log.String(), "level=WARN"); got != 1 || !strings.Contains(r.log.String(), "no such filter") {
		t.Errorf("want one warning of the rejection:\n%s", r.log)
	}
	for _, m := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{1, "pilot_xds", []string{"version", "1.31.0"}},
		{3, "pilot_xds_pushes", []string{"type", "cds"}},
		{2, "pilot_xds_pushes", []string{"type", "eds"}},
		{0, "pilot_xds_pushes", []string{"type", "cds_senderr"}},
		{1, "pilot_total_xds_rejects", []string{"type", "lds"}},
		{1, "pilot_xds_lds_reject", []string{"node", "web.a", "err", "Internal"}},
		{1, "pilot_push_triggers", []string{"type", "config"}},
		{3, "pilot_xds_config_size_bytes", []string{"type", "cds"}},
		{3, "pilot_xds_push_time", []string{"type", "cds"}},
		{8, "pilot_xds_send_time", nil},
		{1, "pilot_proxy_queue_time", nil},
		{1, "pilot_proxy_convergence_time", nil},
	} {
		eventually(t, fmt.Sprint(m.name, m.labels, " is ", m.want), func() bool { return sample(t, r.reg, m.name, m.labels...) == m.want })
	}
	if sample(t, r.reg, "pilot_xds_recv_max") < 100 {
		t.Error("the largest request is not known")
	}

	// Compare everything anew: nothing differs.
	joins := r.fake.Count("join")
	r.server.Push()
	eventually(t, "everything is compared", func() bool { return r.fake.Count("join") > joins })
	if !r.server.Disconnect("web.a") || r.server.Disconnect("nobody.a") {
		t.Error("disconnect")
	}
	if _, err := c.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a disconnected stream ends with %v", err)
	}
	eventually(t, "the stream is gone", func() bool { return len(r.server.Clients()) == 0 })
	if sample(t, r.reg, "pilot_xds_lds_reject") != -1 || sample(t, r.reg, "pilot_xds") != -1 {
		t.Error("gauges of a proxy that is gone")
	}
}

func TestServerStateOfTheWorld(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "eds a=1")
	stream, err := r.dial().StreamAggregatedResources(t.Context())
	must.Succeed(t, err)
	exchange := func(req *discoveryv3.DiscoveryRequest, want ...string) *discoveryv3.DiscoveryResponse {
		t.Helper()
		must.Succeed(t, stream.Send(req))
		m, err := stream.Recv()
		must.Succeed(t, err)
		var got []string
		for _, x := range m.Resources {
			got = append(got, string(x.Value))
		}
		if !slices.Equal(got, want) || m.TypeUrl != req.TypeUrl {
			t.Fatalf("got %v, want %v", got, want)
		}
		return m
	}
	m := exchange(&discoveryv3.DiscoveryRequest{Node: xdstest.Node("web.a"), TypeUrl: envoy.ClusterType}, "a=1")
	exchange(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNames: []string{"a"}}, "a=1")
	// A node in a later request changes nothing.
	ack := &discoveryv3.DiscoveryRequest{
		Node: xdstest.Node("other.b"), TypeUrl: envoy.ClusterType, ResponseNonce: m.Nonce, VersionInfo: m.VersionInfo,
	}
	must.Succeed(t, stream.Send(ack))
	r.publish(true, "cds b=1")
	n, err := stream.Recv()
	if err != nil || n.VersionInfo == m.VersionInfo || n.VersionInfo == "" || n.Nonce == m.Nonce || len(n.Resources) != 2 {
		t.Fatalf("%v %v", n, err)
	}
	if c := r.server.Clients(); len(c) != 1 || c[0].ID != "web.a-1" || c[0].Delta {
		t.Errorf("clients: %+v", c)
	}
	must.Succeed(t, stream.CloseSend())
	for err == nil {
		_, err = stream.Recv()
	}
	if err != io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
}

// An endpoint that changes goes to those who subscribe to it, and costs the others nothing.
func TestEndpointsGoToSubscribers(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "cds b=1", "eds a=1", "eds b=1")
	one, two := r.delta("one.a"), r.delta("two.a")
	for c, name := range map[*deltaClient]string{one: "a", two: "b"} {
		c.expect("cds a=1 b=1")
		c.subscribe("eds", name)
		c.expect("eds " + name + "=1")
	}
	// a stream without a group checks everything, and so does one whose group checks two pushes in one
	r.grouped("a", "b")
	wildcards, joins := r.fake.Count("wildcard cds"), r.fake.Count("join")
	for i := range 10 {
		v := fmt.Sprint("a=", i+2)
		r.publish(false, "eds "+v)
		one.expect("eds " + v)
		r.checked()
	}
	r.publish(false, "eds b=2")
	two.expect("eds b=2") // and none of those before
	if w, j := r.fake.Count("wildcard cds"), r.fake.Count("join"); w != wildcards || j != joins {
		t.Errorf("%d cluster lists were made and %d cohorts joined for endpoints", w-wildcards, j-joins)
	}
}

// A slow reader skips the states in between and costs the others nothing; once it reads it gets the newest.
func TestTheLatestWins(t *testing.T) {
	r := newRig(t)
	big := strings.Repeat("x", 1<<20)
	world := func(i int) []string {
		var edits []string
		for j := range 4 {
			edits = append(edits, fmt.Sprintf("cds c%d=%d%s", j, i, big))
		}
		return edits
	}
	r.publish(true, append(world(0), "cds fast=0")...)
	slow := r.delta("slow.a")
	quick := r.delta("quick.a")
	quick.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: []string{"fast"}})
	for range 2 {
		if _, err := quick.stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the slow one is being sent to", func() bool { return r.fake.Count("wildcard cds") >= 2 })
	const rounds = 50
	for i := 1; i <= rounds; i++ {
		start := time.Now()
		r.publish(true, fmt.Sprintf("cds fast=%d", i))
		quick.expect(fmt.Sprintf("cds fast=%d", i))
		quick.expect("eds fast=none")
		if d := time.Since(start); d > 5*time.Second {
			t.Fatalf("a slow reader delayed another by %v", d)
		}
	}
	received := 0
	for last := ""; last != fmt.Sprint(rounds); received++ {
		m, err := slow.stream.Recv()
		must.Succeed(t, err)
		for _, x := range m.Resources {
			if x.Name == "fast" {
				last = x.Version
			}
		}
	}
	if received > 5 {
		t.Errorf("the slow one was sent %d responses for %d states", received, rounds)
	}
}
