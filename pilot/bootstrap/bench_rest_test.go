package bootstrap

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// BenchmarkStreamAtRest: what the server keeps for a stream whose client has everything, by the size of the mesh: bytes
// of the heap and of stacks, without the transport. The time is that of a first configuration.
func BenchmarkStreamAtRest(b *testing.B) {
	for _, services := range xdstest.Sizes() {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			f, _ := newLonelyFleet(services)
			ctx, cancel := context.WithCancel(context.Background())
			f.cancel = func() { cancel(); f.server.Shutdown() }
			defer f.stop()
			clusters := make([]string, services)
			for i := range clusters {
				clusters[i] = benchCluster(i)
			}
			n := 0
			connect := func() {
				s := &fullStream{ctx: ctx, b: b, clusters: clusters, requests: make(chan []byte, 16), rest: make(chan struct{}),
					answered: map[string]bool{}}
				s.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, Node: benchNode(n%services, n/services%benchEndpoints)})
				f.running.Go(func() {
					_ = f.server.DeltaAggregatedResources(&grpc.GenericServerStream[
						discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]{ServerStream: s})
				})
				<-s.rest
				n++
			}
			for range benchNamespaces { // what their streams share is not what one more stream takes
				connect()
			}
			heap, stacks := kept()
			for b.Loop() {
				connect()
			}
			heapAfter, stacksAfter := kept()
			streams := float64(n - benchNamespaces)
			b.ReportMetric(float64(heapAfter-heap)/streams, "heap-B/stream")
			b.ReportMetric(float64(stacksAfter-stacks)/streams, "stack-B/stream")
		})
	}
}

// kept returns the bytes of the heap and of stacks.
func kept() (heap, stacks int) {
	heap = int(xdstest.Heap()) //nolint:gosec // less than a process has
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return heap, int(m.StackInuse) //nolint:gosec // less than a process has
}

// fullStream is the stream of an Envoy that asks for everything and acknowledges it.
type fullStream struct {
	grpc.ServerStream
	ctx      context.Context
	b        *testing.B
	clusters []string
	requests chan []byte
	rest     chan struct{} // closed when the server has answered everything and waits for a request

	mu       sync.Mutex
	answered map[string]bool // by type URL
	resting  bool
}

func (s *fullStream) ask(r *discoveryv3.DeltaDiscoveryRequest) {
	message, err := proto.Marshal(r)
	must.Succeed(s.b, err)
	s.requests <- message
}

// Context implements grpc.ServerStream.
func (s *fullStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s *fullStream) SendMsg(m any) error {
	head, r := m.(mem.BufferSlice)[0], discoveryv3.DeltaDiscoveryResponse{}
	if err := proto.Unmarshal(head.ReadOnlyData(), &r); err != nil {
		return err
	}
	s.mu.Lock()
	first := !s.answered[r.TypeUrl]
	s.answered[r.TypeUrl] = true
	s.mu.Unlock()
	if first {
		switch r.TypeUrl {
		case envoy.ClusterType:
			s.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: s.clusters})
			s.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ListenerType})
		case envoy.ListenerType:
			s.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.RouteType, ResourceNamesSubscribe: []string{"80"}})
		case envoy.RouteType:
			s.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.VirtualHostType})
		}
	}
	s.ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
	return nil
}

// RecvMsg implements grpc.ServerStream.
func (s *fullStream) RecvMsg(m any) error {
	s.mu.Lock()
	if len(s.requests) == 0 && len(s.answered) == 5 && !s.resting {
		s.resting = true
		close(s.rest)
	}
	s.mu.Unlock()
	select {
	case message := <-s.requests:
		return m.(*wire.Request).Unmarshal(mem.BufferSlice{mem.SliceBuffer(message)})
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}
