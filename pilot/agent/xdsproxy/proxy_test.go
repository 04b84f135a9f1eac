package xdsproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/agent/upstream"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const clusterType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// controlPlane passes its streams to the test.
type controlPlane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	address string
	delta   chan *deltaUp
	sotw    chan *sotwUp
}

// up is a stream at the control plane, which ends with the test's error.
type up[Q, R any] struct {
	t *testing.T
	side[Q, R]
	end chan error
}

type (
	deltaUp = up[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse]
	sotwUp  = up[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse]
)

type side[Q, R any] interface {
	Send(R) error
	Recv() (Q, error)
	Context() context.Context
}

func (u *up[Q, R]) recv() Q {
	u.t.Helper()
	q, err := u.Recv()
	must.Succeed(u.t, err)
	return q
}

func (u *up[Q, R]) send(r R) {
	u.t.Helper()
	must.Succeed(u.t, u.Send(r))
}

func (c *controlPlane) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return handOver(s, c.delta)
}

func (c *controlPlane) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return handOver(s, c.sotw)
}

// handOver passes a stream to the test, and ends it with the test's error.
func handOver[Q, R any](s side[Q, R], to chan *up[Q, R]) error {
	u := &up[Q, R]{nil, s, make(chan error, 1)}
	to <- u
	select {
	case err := <-u.end:
		return err
	case <-s.Context().Done():
		return nil
	}
}

// world is a proxy between a fake control plane and a fake Envoy.
type world struct {
	t     *testing.T
	cp    *controlPlane
	proxy *Proxy
	envoy discoveryv3.AggregatedDiscoveryServiceClient
}

func start(t *testing.T, o Options) *world {
	t.Helper()
	c := &controlPlane{
		delta: make(chan *deltaUp),
		sotw:  make(chan *sotwUp),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	g := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, c)
	var running sync.WaitGroup
	running.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); running.Wait() })
	c.address = l.Addr().String()
	return startBeside(t, o, c)
}

// startBeside calls start for a control plane that is running.
func startBeside(t *testing.T, o Options, c *controlPlane) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "xds") // a socket's path must be short
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o.Path = filepath.Join(dir, "XDS")
	if o.Upstream, err = upstream.New(upstream.Options{Address: c.address, Plaintext: true}); err != nil {
		t.Fatal(err)
	}
	p, err := New(o)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- p.Run(ctx) }()
	go func() { ended <- o.Upstream.Run(ctx) }()
	conn, err := grpc.NewClient("unix://"+o.Path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	must.Succeed(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
	return &world{t, c, p, discoveryv3.NewAggregatedDiscoveryServiceClient(conn)}
}

// delta opens a stream of Envoy's, and returns both ends.
func (w *world) delta(ctx context.Context) (discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, *deltaUp) {
	w.t.Helper()
	s, err := w.envoy.DeltaAggregatedResources(ctx)
	must.Succeed(w.t, err)
	u := <-w.cp.delta
	u.t = w.t
	return s, u
}

// asking calls delta, and returns the stream when its first request, for a type, has arrived.
func (w *world) asking(ctx context.Context, typeURL string) (discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient,
	*deltaUp) {
	w.t.Helper()
	envoy, up := w.delta(ctx)
	must.Succeed(w.t, envoy.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(), TypeUrl: typeURL}))
	up.recv()
	return envoy, up
}

func (w *world) sotw(ctx context.Context) (discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, *sotwUp) {
	w.t.Helper()
	s, err := w.envoy.StreamAggregatedResources(ctx)
	must.Succeed(w.t, err)
	u := <-w.cp.sotw
	u.t = w.t
	return s, u
}

// equal compares two forwarded messages.
func equal(t *testing.T, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Fatalf("received %v, want %v", got, want)
	}
}

// receives fails the test unless the next message of a stream is the wanted one.
func receives[R proto.Message](t *testing.T, s interface{ Recv() (R, error) }, want R) {
	t.Helper()
	got, err := s.Recv()
	must.Succeed(t, err)
	equal(t, got, want)
}

func node() *corev3.Node { return &corev3.Node{Id: "sidecar~10.0.0.1~web.a~a.svc.cluster.local"} }

func any1(typeURL, value string) *anypb.Any {
	return &anypb.Any{TypeUrl: typeURL, Value: []byte(value)}
}

// TestDelta checks that requests, responses and rejections are forwarded unchanged, including the versions with which
// Envoy resumes, and that Envoy's stream ends with the control plane's error.
func TestDelta(t *testing.T) {
	w := start(t, Options{})
	envoy, up := w.delta(t.Context())
	first := &discoveryv3.DeltaDiscoveryRequest{Node: node(), TypeUrl: clusterType, InitialResourceVersions: map[string]string{"a": "1"},
		ResourceNamesSubscribe: []string{"*"}}
	must.Succeed(t, envoy.Send(first))
	equal(t, up.recv(), first)
	big := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterType, Nonce: "n1", Resources: []*discoveryv3.Resource{
		{Name: "a", Version: "2", Resource: any1(clusterType, strings.Repeat("x", 8<<20))},
		{Name: "b", Version: "1", Resource: any1(clusterType, "y")},
	}, RemovedResources: []string{"c"}}
	up.send(big)
	receives(t, envoy, big)
	no := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: clusterType, ResponseNonce: "n1",
		ErrorDetail: &rpcstatus.Status{Code: 3, Message: "bad"}}
	must.Succeed(t, envoy.Send(no))
	equal(t, up.recv(), no)
	up.end <- status.Error(codes.ResourceExhausted, "too many")
	if _, err := envoy.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("Envoy is told %v", err)
	}

	envoy, up = w.delta(t.Context())
	up.end <- nil
	if _, err := envoy.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("of a plain end Envoy is told %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, up = w.delta(ctx)
	cancel()
	<-up.Context().Done()
	envoy, up = w.delta(t.Context())
	must.Succeed(t, envoy.CloseSend())
	if _, err := envoy.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("of its own end Envoy is told %v", err)
	}
	<-up.Context().Done()
}

// TestOwnSubscriptions checks that the agent subscribes to the types of its handlers when Envoy requests listeners,
// and acknowledges or rejects them itself, in both protocols, unseen by Envoy.
func TestOwnSubscriptions(t *testing.T) {
	tables := make(chan string, 1)
	handlers := map[string]func([]byte) error{NameTableType: func(b []byte) error {
		switch string(b) {
		case "bad":
			return errors.New("no table")
		case "worse":
			panic("worse")
		}
		tables <- string(b)
		return nil
	}}
	t.Run("delta", func(t *testing.T) {
		w := start(t, Options{Handlers: handlers})
		envoy, up := w.delta(t.Context())
		must.Succeed(t, envoy.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(), TypeUrl: clusterType}))
		listeners := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: listenerType}
		must.Succeed(t, envoy.Send(listeners))
		if q := up.recv(); q.TypeUrl != clusterType {
			t.Fatalf("before Envoy's first request: %v", q)
		}
		equal(t, up.recv(), listeners)
		equal(t, up.recv(), &discoveryv3.DeltaDiscoveryRequest{TypeUrl: NameTableType})
		table := func(nonce, text string) {
			up.send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: NameTableType, Nonce: nonce,
				Resources: []*discoveryv3.Resource{{Resource: any1(NameTableType, text)}}})
		}
		table("1", "one")
		if got := <-tables; got != "one" {
			t.Errorf("the table is %q", got)
		}
		equal(t, up.recv(), &discoveryv3.DeltaDiscoveryRequest{TypeUrl: NameTableType, ResponseNonce: "1"})
		for nonce, text := range map[string]string{"2": "bad", "3": "worse"} {
			table(nonce, text)
			if q := up.recv(); q.ResponseNonce != nonce || q.GetErrorDetail().GetMessage() == "" {
				t.Errorf("%s is answered with %v", text, q)
			}
		}
		must.Succeed(t, envoy.Send(listeners)) // the agent subscribes only once
		equal(t, up.recv(), listeners)
		own := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterType, Nonce: "4"}
		up.send(own)
		receives(t, envoy, own)
	})
	t.Run("state of the world", func(t *testing.T) {
		w := start(t, Options{Handlers: handlers})
		envoy, up := w.sotw(t.Context())
		must.Succeed(t, envoy.Send(&discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: listenerType}))
		up.recv()
		equal(t, up.recv(), &discoveryv3.DiscoveryRequest{TypeUrl: NameTableType})
		for nonce, text := range []string{"one", "bad"} {
			up.send(&discoveryv3.DiscoveryResponse{TypeUrl: NameTableType, VersionInfo: "v-" + text, Nonce: fmt.Sprint(nonce),
				Resources: []*anypb.Any{any1(NameTableType, text)}})
			q := up.recv()
			if q.ResponseNonce != fmt.Sprint(nonce) || q.VersionInfo != "v-one" || (q.ErrorDetail != nil) != (text == "bad") {
				t.Errorf("%s is answered with %v", text, q)
			}
		}
		<-tables
	})
}

// TestHealth checks that the health of an application is reported when it changes, and on each new stream after
// Envoy's first requests.
func TestHealth(t *testing.T) {
	w := start(t, Options{})
	w.proxy.SetHealth(false, "starting")
	envoy, up := w.asking(t.Context(), listenerType)
	if q := up.recv(); q.TypeUrl != healthType || q.GetErrorDetail().GetMessage() != "starting" {
		t.Fatalf("reported %v", q)
	}
	w.proxy.SetHealth(true, "")
	equal(t, up.recv(), &discoveryv3.DeltaDiscoveryRequest{TypeUrl: healthType})
	up.end <- status.Error(codes.Unavailable, "restart")
	if _, err := envoy.Recv(); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	old, world := w.sotw(t.Context())
	must.Succeed(t, old.Send(&discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: listenerType}))
	world.recv()
	equal(t, world.recv(), &discoveryv3.DiscoveryRequest{TypeUrl: healthType})
}

// TestExtensionsTogether checks that the extensions of one response are replaced concurrently, and that a panic
// rejects them.
func TestExtensionsTogether(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	w := start(t, Options{Extensions: func(ctx context.Context, b []byte) ([]byte, bool, error) {
		if string(b) == "panic" {
			panic("of a test")
		}
		both.Done() // each waits for the other
		both.Wait()
		return b, false, nil
	}})
	envoy, up := w.asking(t.Context(), extensionType)
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: extensionType, Nonce: "1"}
	for _, name := range []string{"a", "b"} {
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Resource: any1(extensionType, name)})
	}
	up.send(r)
	receives(t, envoy, r)
	r.Nonce, r.Resources = "2", []*discoveryv3.Resource{{Name: "c", Resource: any1(extensionType, "panic")}}
	up.send(r)
	if q := up.recv(); q.ResponseNonce != "2" || !strings.Contains(q.GetErrorDetail().GetMessage(), "panic") {
		t.Errorf("a panic is answered with %v", q)
	}
}

// TestExtensions checks that extensions are replaced without delaying other types, and rejected on an error.
func TestExtensions(t *testing.T) {
	release := make(chan struct{})
	w := start(t, Options{Extensions: func(ctx context.Context, b []byte) ([]byte, bool, error) {
		select {
		case <-release:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		if string(b) == "bad" {
			return nil, false, errors.New("no module")
		}
		return append(b, " fetched"...), false, nil
	}})
	envoy, up := w.asking(t.Context(), extensionType)
	extension := func(nonce, text string) *discoveryv3.DeltaDiscoveryResponse {
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: extensionType, Nonce: nonce,
			Resources: []*discoveryv3.Resource{{Name: "e", Resource: any1(extensionType, text)}}}
	}
	up.send(extension("1", "one"))
	other := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterType, Nonce: "2"}
	up.send(other)
	receives(t, envoy, other)
	close(release)
	receives(t, envoy, extension("1", "one fetched"))
	up.send(extension("3", "bad"))
	if q := up.recv(); q.ResponseNonce != "3" || !strings.Contains(q.GetErrorDetail().GetMessage(), "no module") {
		t.Errorf("answered with %v", q)
	}
	up.send(extension("4", "two"))
	receives(t, envoy, extension("4", "two fetched"))
}

// TestRejectedInItsStead checks that, after the agent has rejected extensions on behalf of a state-of-the-world
// Envoy, Envoy's next request has the nonce that the control plane expects.
func TestRejectedInItsStead(t *testing.T) {
	w := start(t, Options{Extensions: func(_ context.Context, b []byte) ([]byte, bool, error) {
		if string(b) == "bad" {
			return nil, false, errors.New("no module")
		}
		return b, false, nil
	}})
	envoy, up := w.sotw(t.Context())
	ask := func(nonce string, names ...string) *discoveryv3.DiscoveryRequest {
		return &discoveryv3.DiscoveryRequest{TypeUrl: extensionType, ResponseNonce: nonce, ResourceNames: names}
	}
	response := func(nonce, text string) *discoveryv3.DiscoveryResponse {
		return &discoveryv3.DiscoveryResponse{TypeUrl: extensionType, Nonce: nonce, Resources: []*anypb.Any{any1(extensionType, text)}}
	}
	pass := func(send, want *discoveryv3.DiscoveryRequest) {
		t.Helper()
		must.Succeed(t, envoy.Send(send))
		equal(t, up.recv(), want)
	}
	pass(ask("", "a"), ask("", "a"))
	up.send(response("1", "good"))
	receives(t, envoy, response("1", "good"))
	pass(ask("1", "a"), ask("1", "a"))
	up.send(response("2", "bad"))
	if q := up.recv(); q.ResponseNonce != "2" || q.GetErrorDetail() == nil || len(q.ResourceNames) != 1 {
		t.Errorf("answered with %v", q)
	}
	pass(ask("1", "a", "b"), ask("2", "a", "b"))
	up.send(response("3", "good"))
	receives(t, envoy, response("3", "good"))
	pass(ask("3", "a"), ask("3", "a"))
}

// TestMissingExtensions checks that Envoy gets an extension when its missing part is available, unless the extension
// has changed since.
func TestMissingExtensions(t *testing.T) {
	var there atomic.Bool
	w := start(t, Options{MinBackoff: time.Millisecond, Extensions: func(_ context.Context, b []byte) ([]byte, bool, error) {
		if strings.HasPrefix(string(b), "missing") && !there.Load() {
			return []byte("instead"), true, nil
		}
		return b, false, nil
	}})
	envoy, up := w.asking(t.Context(), extensionType)
	response := func(nonce string, texts ...string) *discoveryv3.DeltaDiscoveryResponse {
		r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: extensionType, Nonce: nonce}
		for i := 0; i < len(texts); i += 2 {
			r.Resources = append(r.Resources, &discoveryv3.Resource{Name: texts[i], Version: "1", Resource: any1(extensionType, texts[i+1])})
		}
		return r
	}
	up.send(response("1", "a", "missing", "b", "there", "c", "missing too"))
	receives(t, envoy, response("1", "a", "instead", "b", "there", "c", "instead"))
	up.send(response("2", "c", "another"))
	receives(t, envoy, response("2", "c", "another"))
	there.Store(true)
	receives(t, envoy, response("2", "a", "missing"))
	up.send(response("3", "b", "there"))
	receives(t, envoy, response("3", "b", "there")) // and no other message before

	there.Store(false)
	world, below := w.sotw(t.Context())
	must.Succeed(t, world.Send(&discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: extensionType}))
	below.recv()
	all := func(text string) *discoveryv3.DiscoveryResponse {
		return &discoveryv3.DiscoveryResponse{TypeUrl: extensionType, Nonce: "1", VersionInfo: "1",
			Resources: []*anypb.Any{any1(extensionType, "b"), any1(extensionType, text)}}
	}
	below.send(all("missing"))
	for _, want := range []string{"instead", "missing"} {
		receives(t, world, all(want))
		there.Store(true)
	}
}

// TestReconnects checks that streams that come and go leave no goroutine and no memory.
func TestReconnects(t *testing.T) {
	w := start(t, Options{Handlers: map[string]func([]byte) error{NameTableType: func([]byte) error { return nil }}})
	size := 16 << 10
	once := func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		envoy, up := w.asking(ctx, listenerType)
		up.send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterType,
			Resources: []*discoveryv3.Resource{{Resource: any1(clusterType, strings.Repeat("x", size))}}})
		if i%2 == 0 {
			_, err := envoy.Recv()
			must.Succeed(t, err)
			up.end <- nil
			_, err = envoy.Recv()
			if status.Code(err) != codes.Unavailable {
				t.Fatal(err)
			}
		}
	}
	settled := func() (goroutines int, heap uint64) {
		for w.proxy.Connected() > 0 {
			time.Sleep(time.Millisecond)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapAlloc
	}
	for i := range 20 {
		once(i)
	}
	goroutines, heap := settled()
	for i := range 1000 {
		once(i)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		g, h := settled()
		if g <= goroutines+2 && h < heap+1<<20 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines and %d bytes became %d and %d", goroutines, heap, g, h)
		}
	}
}

// TestBackpressure checks that the control plane waits for an Envoy that does not read, and that the agent buffers
// little.
func TestBackpressure(t *testing.T) {
	w := start(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, up := w.asking(ctx, clusterType)
	const most = 64 << 20
	body := strings.Repeat("x", 1<<20)
	sent := make(chan int)
	go func() {
		n := 0
		for ; n < most/len(body); n++ {
			if up.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: clusterType,
				Resources: []*discoveryv3.Resource{{Resource: any1(clusterType, body)}}}) != nil {
				break
			}
		}
		sent <- n
	}()
	for counterValue(t, w.proxy) == 0 {
		time.Sleep(time.Millisecond)
	}
	var last float64
	for same := 0; same < 20; time.Sleep(10 * time.Millisecond) { // until nothing moves
		m := counterValue(t, w.proxy)
		if m == last {
			same++
		} else {
			same, last = 0, m
		}
	}
	if last > 16 {
		t.Errorf("%v MiB were taken for an Envoy that reads nothing", last)
	}
	cancel()
	if n := <-sent; n > 32 {
		t.Errorf("%d MiB were sent", n)
	}
}

// TestStreamsAreBounded checks that HTTP/2 limits the number of streams of each client.
func TestStreamsAreBounded(t *testing.T) {
	w := start(t, Options{})
	conn, err := net.Dial("unix", w.proxy.o.Path)
	must.Succeed(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, http2.ClientPreface)
	must.Succeed(t, err)
	f := http2.NewFramer(conn, conn)
	must.Succeed(t, f.WriteSettings())
	frame, err := f.ReadFrame()
	must.Succeed(t, err)
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("the first frame is %v", frame)
	}
	if n, ok := settings.Value(http2.SettingMaxConcurrentStreams); n != maxStreams {
		t.Errorf("%d streams, %v", n, ok)
	}
}

// freeAddress returns an address of this host on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := freeport.Pick(t.Context(), "127.0.0.1")
	must.Succeed(t, err)
	return net.JoinHostPort("127.0.0.1", port)
}

func TestDebug(t *testing.T) {
	at := freeAddress(t)
	w := start(t, Options{Debug: at, Node: node()})
	go func() {
		up := <-w.cp.sotw
		q, err := up.Recv()
		if err != nil {
			return
		}
		_ = up.Send(&discoveryv3.DiscoveryResponse{TypeUrl: q.TypeUrl,
			Resources: []*anypb.Any{any1(q.TypeUrl, fmt.Sprintf("{%q: %q, %q: %q}", q.TypeUrl, q.ResourceNames, "node", q.Node.Id))}})
	}()
	body := func(path string) (int, string) {
		r, err := http.Get("http://" + at + path)
		must.Succeed(t, err)
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		must.Succeed(t, err)
		http.DefaultClient.CloseIdleConnections()
		return r.StatusCode, string(b)
	}
	if code, text := body("/debug/config_dump?proxyID=web.a"); code != 200 ||
		!strings.Contains(text, `"istio.io/debug": ["config_dump?proxyID=web.a"]`) || !strings.Contains(text, node().Id) {
		t.Errorf("%d %s", code, text)
	}
	if code, _ := body("/metrics"); code != 404 {
		t.Errorf("another path is answered with %d", code)
	}

	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer conn.Close()
	tool, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
	must.Succeed(t, err)
	up := <-w.cp.sotw
	up.t = t
	ask := &discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: debugType + "/syncz"}
	must.Succeed(t, tool.Send(ask))
	equal(t, up.recv(), ask)
	up.send(&discoveryv3.DiscoveryResponse{TypeUrl: ask.TypeUrl})
	if _, err := tool.Recv(); err != nil {
		t.Error(err)
	}
	must.Succeed(t, tool.Send(&discoveryv3.DiscoveryRequest{TypeUrl: clusterType}))
	if _, err := tool.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("configuration on the port of debug pages: %v", err)
	}
	for _, bad := range []string{"0.0.0.0:15004", "10.0.0.1:15004", "15004"} {
		dir := t.TempDir()
		if p, err := New(Options{Path: filepath.Join(dir, "s"), Upstream: w.proxy.o.Upstream, Debug: bad}); err == nil {
			t.Errorf("%s is taken: %v", bad, p)
		}
	}
}

// TestDebugAnswersNoWebPage checks that requests of web pages in a browser on this host are refused, without a
// request to the control plane.
func TestDebugAnswersNoWebPage(t *testing.T) {
	at := freeAddress(t)
	w := start(t, Options{Debug: at, Node: node()})
	go func() {
		for up := range w.cp.sotw {
			if q, err := up.Recv(); err == nil {
				_ = up.Send(&discoveryv3.DiscoveryResponse{TypeUrl: q.TypeUrl, Resources: []*anypb.Any{any1(q.TypeUrl, "{}")}})
			}
			up.end <- nil
		}
	}()
	defer close(w.cp.sotw)
	_, port, _ := net.SplitHostPort(at)
	for _, c := range []struct {
		host, header, value string
		want                int
	}{
		{"rebound.example:" + port, "", "", http.StatusForbidden},
		{"rebound.example", "", "", http.StatusForbidden},
		{"localhost.rebound.example", "", "", http.StatusForbidden},
		{at, "Origin", "https://evil.example", http.StatusForbidden},
		{at, "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		{at, "Origin", "http://" + at, http.StatusOK},
		{"localhost:" + port, "", "", http.StatusOK},
		{"[::1]:" + port, "", "", http.StatusOK},
	} {
		r, err := http.NewRequest(http.MethodGet, "http://"+at+"/debug/config_dump?proxyID=web.a", nil)
		must.Succeed(t, err)
		r.Host = c.host
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		a, err := http.DefaultClient.Do(r)
		must.Succeed(t, err)
		_ = a.Body.Close()
		if a.StatusCode != c.want {
			t.Errorf("%v: %d", c, a.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestPages checks that JSON from the control plane is unchanged, that other text becomes JSON, and that a message of
// an unknown type is an error.
func TestPages(t *testing.T) {
	known, err := anypb.New(&statusv3.ClientConfig{Node: node()})
	must.Succeed(t, err)
	for name, c := range map[string]struct {
		list []*anypb.Any
		want string // empty means an error
	}{
		"JSON":             {[]*anypb.Any{{TypeUrl: debugType, Value: []byte(`{"a": 1}`)}}, `{"a": 1}`},
		"a text":           {[]*anypb.Any{{TypeUrl: debugType, Value: []byte("404 page not found")}}, `"404 page not found"`},
		"several":          {[]*anypb.Any{{TypeUrl: debugType, Value: []byte("{}")}, {TypeUrl: debugType, Value: []byte("[]")}}, "[{},[]]"},
		"none":             {nil, "[]"},
		"a known type":     {[]*anypb.Any{known}, "ClientConfig"},
		"an unknown type":  {[]*anypb.Any{{TypeUrl: "type.googleapis.com/envoy.admin.v3.Unknown", Value: []byte("\n\x03abc")}}, ""},
		"one that is cut":  {[]*anypb.Any{{TypeUrl: known.TypeUrl, Value: []byte("\n\x03a")}}, ""},
		"one unknown of 2": {[]*anypb.Any{known, {TypeUrl: "type.googleapis.com/x.Y", Value: []byte("\n\x03abc")}}, ""},
	} {
		got, err := pages(c.list)
		if (err != nil) != (c.want == "") || !strings.Contains(string(got), c.want) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestTypeOf(t *testing.T) {
	encoded, err := proto.Marshal(&discoveryv3.DiscoveryResponse{VersionInfo: "1", Resources: []*anypb.Any{any1("other", "body")},
		TypeUrl: clusterType, Nonce: "n", Canary: true})
	must.Succeed(t, err)
	for cut := range encoded { // split into two buffers
		m := mem.BufferSlice{mem.SliceBuffer(encoded[:cut]), mem.SliceBuffer(encoded[cut:])}
		if got, err := typeOf(m, sotwTypeURL); got != clusterType || err != nil {
			t.Fatalf("cut at %d: %q, %v", cut, got, err)
		}
	}
	for n, want := range map[int]int{512: 512, 513: 0} { // longer types are ignored
		long, err := proto.Marshal(&discoveryv3.DiscoveryResponse{TypeUrl: strings.Repeat("t", n)})
		must.Succeed(t, err)
		if got, err := typeOf(mem.BufferSlice{mem.SliceBuffer(long)}, sotwTypeURL); len(got) != want || err != nil {
			t.Errorf("a type of %d bytes: %d of them, %v", n, len(got), err)
		}
	}
	for n := 1; n < len(encoded); n++ { // each prefix is a response or an error
		m := mem.BufferSlice{mem.SliceBuffer(encoded[:n])}
		_, err := typeOf(m, sotwTypeURL)
		if want := proto.Unmarshal(encoded[:n], &discoveryv3.DiscoveryResponse{}); (err == nil) != (want == nil) {
			t.Errorf("%d bytes: %v, want %v", n, err, want)
		}
	}
}

func FuzzTypeOf(f *testing.F) {
	encoded, _ := proto.Marshal(&discoveryv3.DiscoveryRequest{TypeUrl: clusterType, Node: node()})
	f.Add(encoded)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &discoveryv3.DiscoveryRequest{}
		got, err := typeOf(mem.BufferSlice{mem.SliceBuffer(b)}, sotwTypeURL)
		if proto.Unmarshal(b, m) == nil && err == nil && len(m.TypeUrl) <= 512 && got != m.TypeUrl {
			t.Errorf("%q, want %q", got, m.TypeUrl)
		}
	})
}

// counterValue returns the number of responses from the control plane.
func counterValue(t *testing.T, p *Proxy) float64 {
	t.Helper()
	return testutil.ToFloat64(p.metrics.responses)
}

// broken is a stream whose receiver panics when the control plane has the other half.
type broken struct {
	grpc.ServerStream
	ctx    context.Context
	opened chan struct{}
}

func (b broken) Context() context.Context { return b.ctx }
func (b broken) RecvMsg(any) error        { <-b.opened; panic("of a test") }

// TestPanic checks that a stream ends if its receiver panics.
func TestPanic(t *testing.T) {
	w := start(t, Options{})
	opened := make(chan struct{})
	go func() {
		<-w.cp.delta
		close(opened)
	}()
	if err := w.proxy.serve(broken{ctx: t.Context(), opened: opened}, true, false); status.Code(err) != codes.Internal {
		t.Error(err)
	}
}
