package load

import (
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// curt is a server that ends each stream after one response.
type curt struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	streams atomic.Int64
}

func (c *curt) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	r, err := s.Recv()
	if err != nil {
		return err
	}
	c.streams.Add(1)
	return errors.Join(s.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: r.TypeUrl, Nonce: "n"}), status.Error(codes.Unavailable, "enough"))
}

// A stream that brought a response makes the next pause as short as the first. If pauses doubled, this many streams
// would take minutes.
func TestPause(t *testing.T) {
	c := &curt{}
	f, err := Start(t.Context(), Options{
		Address: serve(t, c, func(l net.Listener) net.Listener { return l }), Proxies: 1, Retry: time.Millisecond,
		Logger:   slog.New(slog.DiscardHandler),
		Identity: func(int) Identity { return Identity{Pod: "p", Namespace: "n", IP: "10.0.0.1"} },
	})
	must.Succeed(t, err)
	defer f.Stop()
	for deadline := time.Now().Add(time.Minute); c.streams.Load() < 40; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d streams in a minute, want 40", c.streams.Load())
		}
	}
}
