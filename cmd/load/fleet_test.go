package load

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// plane is a control plane with one cluster, one listener and one route. It records requests.
type plane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t       *testing.T
	changes chan string // texts for the route; each is sent on one stream

	mu         sync.Mutex
	refuse     int // streams to refuse
	extensions []int
	asked      map[string][]string // requests by node ID
	conns      []net.Conn
	closed     int // delta streams that ended
	// large is the size of the answer to each request, in bytes.
	large int
}

// ask records a request that is no acknowledgement: its type, its names and the versions that it names.
func (p *plane) ask(id, url string, names []string, held map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := Type(slices.Index(typeURLs[:], url)).String() + fmt.Sprint(names)
	if len(held) > 0 {
		text += fmt.Sprint(held)
	}
	p.asked[id] = append(p.asked[id], text)
}

// wasAsked reports each proxy that did not send the wanted requests.
func (p *plane) wasAsked(want []string) {
	p.t.Helper()
	for id, got := range p.asked {
		if diff := cmp.Diff(want, got); diff != "" {
			p.t.Errorf("%s asked (-want +got):\n%s", id, diff)
		}
	}
}

func (p *plane) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = map[string][]string{}
}

// listener keeps its connections for the plane.
type listener struct {
	net.Listener
	p *plane
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.conns = append(l.p.conns, c)
	return c, err
}

func (p *plane) let(extensions int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.extensions = append(p.extensions, extensions)
	if p.refuse > 0 {
		p.refuse--
		return status.Error(codes.Unavailable, "not now")
	}
	return nil
}

func (p *plane) body(url, text string) *anypb.Any {
	any := func(m proto.Message) *anypb.Any {
		a, err := anypb.New(m)
		if err != nil {
			p.t.Error(err)
		}
		return a
	}
	switch Type(slices.Index(typeURLs[:], url)) {
	case Clusters:
		return any(&clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}})
	case Endpoints:
		return any(&endpointv3.ClusterLoadAssignment{ClusterName: "c"})
	case Listeners:
		hcm := any(&hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "r"}}})
		return any(&listenerv3.Listener{Name: "l", FilterChains: []*listenerv3.FilterChain{
			{Filters: []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm}}}},
		}})
	case VirtualHosts:
		return any(&routev3.VirtualHost{Name: text})
	default:
		return any(&routev3.RouteConfiguration{Name: "r", Vhds: &routev3.Vhds{},
			VirtualHosts: []*routev3.VirtualHost{{Name: text + strings.Repeat("x", p.large)}}})
	}
}

func nameOf(url string) string {
	return [...]string{"c", "c", "l", "r", "r/h"}[slices.Index(typeURLs[:], url)]
}

func (p *plane) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.closed++
	}()
	id, requests := "", make(chan *discoveryv3.DeltaDiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			requests <- r
		}
	}()
	send := func(url, text string) error {
		return s.Send(&discoveryv3.DeltaDiscoveryResponse{
			TypeUrl: url, Nonce: "n", Resources: []*discoveryv3.Resource{{Name: nameOf(url), Version: "1", Resource: p.body(url, text)}},
		})
	}
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			if r.Node != nil {
				id = r.Node.Id
				if err := p.let(len(r.Node.Extensions)); err != nil {
					return err
				}
			}
			if r.ResponseNonce != "" {
				continue
			}
			p.ask(id, r.TypeUrl, r.ResourceNamesSubscribe, r.InitialResourceVersions)
			if err := send(r.TypeUrl, "first"); err != nil {
				return err
			}
		case text := <-p.changes:
			if err := send(typeURLs[Routes], text); err != nil {
				return err
			}
		}
	}
}

func (p *plane) StreamAggregatedResources(s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	id := ""
	for {
		r, err := s.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has left
		}
		if r.Node != nil {
			id = r.Node.Id
		}
		if r.ResponseNonce != "" {
			continue
		}
		p.ask(id, r.TypeUrl, r.ResourceNames, nil)
		if err := s.Send(&discoveryv3.DiscoveryResponse{TypeUrl: r.TypeUrl, VersionInfo: "1", Nonce: "n",
			Resources: []*anypb.Any{p.body(r.TypeUrl, "first")}}); err != nil {
			return err
		}
	}
}

func (p *plane) serve() string {
	return serve(p.t, p, func(l net.Listener) net.Listener { return listener{l, p} })
}

// serve runs a server until the test ends and returns its address. wrap replaces the listener.
func serve(t *testing.T, ads discoveryv3.AggregatedDiscoveryServiceServer, wrap func(net.Listener) net.Listener) string {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	s := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, ads)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Serve(wrap(l)); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { s.Stop(); <-ended })
	return l.Addr().String()
}

func fleet(t *testing.T, address string, proxies int, whole bool) *Fleet {
	t.Helper()
	f, err := Start(t.Context(), Options{
		Address: address, Proxies: proxies, StateOfTheWorld: whole, Retry: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Identity: func(i int) Identity {
			return Identity{Pod: fmt.Sprintf("p%d", i), Namespace: "ns", IP: "10.0.0.1", Labels: map[string]string{"app": "a"}}
		},
	})
	must.Succeed(t, err)
	t.Cleanup(f.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.Succeed(t, f.Wait(ctx))
	return f
}

// A proxy sends requests in Envoy's order: clusters, their assignments, listeners, their routes. It lists the
// extensions that a real one lists. A refused stream is counted and tried again.
func TestOrderOfRequests(t *testing.T) {
	defer leaks.None(t, goleak.IgnoreCurrent())
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%v", whole), func(t *testing.T) {
			p := &plane{t: t, asked: map[string][]string{}}
			if !whole {
				p.refuse = 1
			}
			f := fleet(t, p.serve(), 2, whole)
			c := f.Counters()
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.asked) != 2 {
				t.Errorf("%d proxies asked, want 2", len(p.asked))
			}
			want := []string{"CDS[]", "EDS[c]", "LDS[]", "RDS[r]"}
			if !whole {
				want = append(want, "VHDS[]")
			}
			p.wasAsked(want)
			for _, n := range p.extensions {
				if n < 516 {
					t.Errorf("a proxy lists %d extensions, a real one at least 516", n)
				}
			}
			if want := int64(len(p.extensions) - 2); !whole && (c.Refused != 1 || want != 1) {
				t.Errorf("%d streams were counted as refused, %d were, want 1", c.Refused, want)
			}
			for kind, n := range c.Types[:len(want)] {
				if n.Responses != 2 || n.Resources != 2 || n.Bytes == 0 {
					t.Errorf("%v: counted %+v, want two responses of one resource each", Type(kind), n)
				}
			}
			if n := len(f.SyncTimes()); n != 2 {
				t.Errorf("%d times until a full configuration, want 2", n)
			}
		})
	}
}

// A proxy that connects again subscribes to everything as before. In the delta protocol it names what it holds.
func TestReconnect(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%v", whole), func(t *testing.T) {
			p := &plane{t: t, asked: map[string][]string{}}
			f := fleet(t, p.serve(), 2, whole)
			p.clear()
			must.Succeed(t, f.Reconnect(t.Context()))
			want := []string{"CDS[]map[c:1]", "EDS[c]map[c:1]", "LDS[]map[l:1]", "RDS[r]map[r:1]", "VHDS[]map[r/h:1]"}
			if whole {
				want = []string{"CDS[]", "EDS[c]", "LDS[]", "RDS[r]"}
			}
			await(t, func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				done := len(p.asked) == 2
				for _, got := range p.asked {
					done = done && len(got) == len(want)
				}
				return done
			})
			p.wasAsked(want)
			if n := f.Counters().Refused; n != 0 {
				t.Errorf("%d streams count as refused", n)
			}
		})
	}
}

// A stalled proxy subscribes to everything again and reads nothing, while others go on. When the server cuts its
// stream, it connects again.
func TestStalledProxy(t *testing.T) {
	p := &plane{t: t, asked: map[string][]string{}, large: 4 * window, changes: make(chan string)}
	f := fleet(t, p.serve(), 2, false)
	before := [2]int64{f.BytesOf(0), f.BytesOf(1)}
	p.clear()
	must.Succeed(t, f.Stall(t.Context(), func(i int) bool { return i == 1 }))
	track := f.Track(TrackOptions{Kinds: []Type{Routes}, Number: FindMark("mark-"), Follows: func(i int) bool { return i == 0 }})
	await(t, func() bool { // neither the stream that was dropped nor the stalled one takes a text
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, got := range p.asked {
			return p.closed == 1 && slices.Contains(got, "RDS[r]")
		}
		return false
	})
	p.changes <- Mark("mark-", track.Next())
	must.Succeed(t, track.Wait(t.Context()))
	if got := f.BytesOf(1); got != before[1] || f.BytesOf(0) == before[0] {
		t.Errorf("received %d and %d, before %v: want the first to go on and the second to stand", f.BytesOf(0), got, before)
	}
	if n := f.Counters(); n.Refused != 0 || n.Cut != 0 {
		t.Errorf("%d refused, %d cut off, want none: %v", n.Refused, n.Cut, f.Failure())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, got := range p.asked { // the server may buffer the last request, for virtual hosts
		if diff := cmp.Diff([]string{"CDS[]", "EDS[c]", "LDS[]", "RDS[r]"}, got[:min(4, len(got))]); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
	}
	if len(p.asked) != 1 {
		t.Errorf("%d proxies connected again, want 1", len(p.asked))
	}
	for _, c := range p.conns {
		_ = c.Close() // of an accepted connection
	}
	await(t, func() bool { c := f.Counters(); return c.Refused == 1 && c.Cut == 1 })
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}

// Percentiles of any number of times are exact to 3 percent.
func TestPercentiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Int64Range(1, 1<<55), 1, 50).Draw(t, "times")
		var sum Times
		for _, d := range all {
			sum.add(time.Duration(d))
		}
		slices.Sort(all)
		for _, share := range []float64{0, 0.5, 0.99, 1} {
			want := float64(all[min(len(all)-1, int(share*float64(len(all))))])
			if got := float64(sum.Percentile(share)); got < want*0.97-1 || got > want*1.03+1 {
				t.Fatalf("%v of %v: got %v, want %v", share, all, got, want)
			}
		}
	})
	var none Times
	if none.Percentile(0.5) != 0 || none.Count() != 0 {
		t.Error("of nothing there is a percentile")
	}
}

// Each change is counted once for each proxy, even if the control plane skips it because a later change replaced it.
func TestTrack(t *testing.T) {
	p := &plane{t: t, asked: map[string][]string{}, changes: make(chan string)}
	f := fleet(t, p.serve(), 2, false)
	track := f.Track(TrackOptions{Kinds: []Type{Routes, VirtualHosts}, Number: FindMark("mark-")})
	before := f.Counters()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	track.Next()
	last := track.Next()
	for range 2 { // one for each stream
		p.changes <- Mark("mark-", last)
	}
	for len(track.Latencies()) < 4 {
		if ctx.Err() != nil {
			t.Fatalf("%d latencies, want 4", len(track.Latencies()))
		}
		time.Sleep(time.Millisecond)
		select { // both may have gone to one stream
		case p.changes <- Mark("mark-", last):
		default:
		}
	}
	must.Succeed(t, track.Wait(ctx))
	if got := track.Latencies(); len(got) != 4 || track.Made() != 2 {
		t.Errorf("%d latencies of %d changes, want 4 of 2", len(got), track.Made())
	}
	if c := f.Counters().Since(before); c.Types[Routes].Responses < 2 || c.Types[Clusters].Responses != 0 ||
		c.Bytes() != c.Types[Routes].Bytes {
		t.Errorf("counted %+v since, want routes alone", c)
	}
	gone, stop := context.WithCancel(ctx)
	stop()
	track.Next()
	if err := track.Wait(gone); err == nil {
		t.Error("a change that was never sent is said to have arrived")
	}
}

// The highest number is found. Torn and foreign text has none.
func TestFindMark(t *testing.T) {
	find := FindMark("x-")
	for text, want := range map[string]int{
		"": -1, "x-": -1, "x-00001": -1, "x-000001": 1, "ax-000002bx-000010x-000007": 10, "x-00000a": -1, "x-abcdefx-000003": 3,
		Mark("x-", 123456): 123456,
	} {
		if got := find([]byte(text)); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}
