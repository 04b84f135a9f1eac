package xdsproxy

import (
	"context"
	"net"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestHostile checks that a malformed response of the control plane ends that stream only, and that a control plane
// that never answers is waited for as long as Envoy waits.
func TestHostile(t *testing.T) {
	good, err := proto.Marshal(&discoveryv3.DiscoveryResponse{TypeUrl: clusterType, Nonce: "1"})
	must.Succeed(t, err)
	table, err := proto.Marshal(&discoveryv3.DiscoveryResponse{TypeUrl: NameTableType, Nonce: "1"})
	must.Succeed(t, err)
	answers := map[string][]byte{
		"no message":                      []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
		"a message that is cut short":     good[:len(good)-1],
		"a length beyond the end":         {sotwTypeURL<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"field 0":                         {0, 0},
		"an own type, then no message":    append(table, 0xff),
		"a group that does not end":       {9<<3 | 3},
		"an end of a group that is alone": {9<<3 | 4},
	}
	answers["none"], answers["good"] = nil, good
	// The control plane responds with the message that the version of the request names.
	g := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		var m mem.BufferSlice
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		r := &discoveryv3.DiscoveryRequest{}
		err := proto.Unmarshal(m.Materialize(), r)
		m.Free()
		if a := answers[r.GetVersionInfo()]; a != nil && err == nil {
			if err := s.SendMsg(mem.BufferSlice{mem.SliceBuffer(a)}); err != nil {
				return err
			}
		}
		<-s.Context().Done()
		return nil
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	var running sync.WaitGroup
	running.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); running.Wait() })
	w := startBeside(t, Options{Handlers: map[string]func([]byte) error{NameTableType: func([]byte) error { return nil }}},
		&controlPlane{address: l.Addr().String()})

	ask := func(ctx context.Context, name string) (*discoveryv3.DiscoveryResponse, error) {
		s, err := w.envoy.StreamAggregatedResources(ctx)
		must.Succeed(t, err)
		must.Succeed(t, s.Send(&discoveryv3.DiscoveryRequest{Node: node(), TypeUrl: clusterType, VersionInfo: name}))
		if name == "none" {
			return nil, nil
		}
		return s.Recv()
	}
	for name := range answers {
		if name == "good" || name == "none" {
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		if r, err := ask(ctx, name); status.Code(err) != codes.Internal {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		if _, err := ask(ctx, "none"); err != nil {
			t.Errorf("no answer: %v", err)
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if r, err := ask(ctx, "good"); err != nil || r.GetNonce() != "1" {
		t.Errorf("a good response: %v, %v", r, err)
	}
}
