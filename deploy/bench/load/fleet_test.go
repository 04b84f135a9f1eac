package load

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
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
)

// plane is a control plane of one cluster, one listener and one route, which writes down what it is asked.
type plane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t       *testing.T
	changes chan string // texts for the route, which are sent to every stream that takes one

	mu         sync.Mutex
	refuse     int // streams that are yet to be refused
	extensions []int
	asked      map[string][]string // by node id, of the first stream
}

// kinds names requests without acknowledgements.
func (p *plane) ask(id, url string, names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[id] = append(p.asked[id], Type(slices.Index(typeURLs[:], url)).String()+fmt.Sprint(names))
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
		return any(&listenerv3.Listener{Name: "l", FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm}}}}}})
	default:
		return any(&routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: text}}})
	}
}

func nameOf(url string) string {
	return [...]string{"c", "c", "l", "r"}[slices.Index(typeURLs[:], url)]
}

func (p *plane) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
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
		return s.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, Nonce: "n", Resources: []*discoveryv3.Resource{{Name: nameOf(url), Version: "1", Resource: p.body(url, text)}}})
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
			p.ask(id, r.TypeUrl, r.ResourceNamesSubscribe)
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
		p.ask(id, r.TypeUrl, r.ResourceNames)
		if err := s.Send(&discoveryv3.DiscoveryResponse{TypeUrl: r.TypeUrl, VersionInfo: "1", Nonce: "n", Resources: []*anypb.Any{p.body(r.TypeUrl, "first")}}); err != nil {
			return err
		}
	}
}

func (p *plane) serve() string {
	l, err := new(net.ListenConfig).Listen(p.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	s := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, p)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Serve(l); err != nil {
			p.t.Error(err)
		}
	}()
	p.t.Cleanup(func() { s.Stop(); <-ended })
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestOrder: a proxy asks as Envoy does: for clusters, for the assignments that they name, then for listeners, then for the routes that those name; and it lists
// what a real one lists. A refused stream is counted and tried again.
func TestOrder(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
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
			for id, got := range p.asked {
				if diff := cmp.Diff([]string{"CDS[]", "EDS[c]", "LDS[]", "RDS[r]"}, got); diff != "" {
					t.Errorf("%s asked (-want +got):\n%s", id, diff)
				}
			}
			for _, n := range p.extensions {
				if n < 516 {
					t.Errorf("a proxy lists %d extensions, a real one at least 516", n)
				}
			}
			if want := int64(len(p.extensions) - 2); !whole && (c.Refused != 1 || want != 1) {
				t.Errorf("%d streams were counted as refused, %d were, want 1", c.Refused, want)
			}
			for kind, n := range c.Types {
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

// TestTrack: every change counts once for each proxy, also one that a control plane never sends by itself because a later one took its place.
func TestTrack(t *testing.T) {
	p := &plane{t: t, asked: map[string][]string{}, changes: make(chan string)}
	f := fleet(t, p.serve(), 2, false)
	track := f.Track(Routes, FindMark("mark-"))
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
	if err := track.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if got := track.Latencies(); len(got) != 4 || track.Made() != 2 {
		t.Errorf("%d latencies of %d changes, want 4 of 2", len(got), track.Made())
	}
	if c := f.Counters().Since(before); c.Types[Routes].Responses < 2 || c.Types[Clusters].Responses != 0 || c.Bytes() != c.Types[Routes].Bytes {
		t.Errorf("counted %+v since, want routes alone", c)
	}
	gone, stop := context.WithCancel(ctx)
	stop()
	track.Next()
	if err := track.Wait(gone); err == nil {
		t.Error("a change that was never sent is said to have arrived")
	}
}

// TestFindMark: the highest number counts, and torn or foreign text is none.
func TestFindMark(t *testing.T) {
	find := FindMark("x-")
	for text, want := range map[string]int{
		"": -1, "x-": -1, "x-00001": -1, "x-000001": 1, "ax-000002bx-000010x-000007": 10, "x-00000a": -1, "x-abcdefx-000003": 3, Mark("x-", 123456): 123456,
	} {
		if got := find([]byte(text)); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}
