package translate_test

import (
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// quiet is how long a server sends nothing when it has sent all.
const quiet = 2 * time.Second

// ask asks a server for resources by their names, as gRPC does, and returns them once nothing more comes.
func ask(t *testing.T, address, node string, names map[string][]string) (all []proto.Message) {
	t.Helper()
	who := &corev3.Node{}
	must.Succeed(t, protojson.Unmarshal([]byte(node), who))
	cc, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer cc.Close()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(t.Context())
	must.Succeed(t, err)
	answers := make(chan *discoveryv3.DiscoveryResponse)
	go func() {
		defer close(answers)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			answers <- r
		}
	}()
	send := func(r *discoveryv3.DiscoveryRequest) {
		t.Helper()
		must.Succeed(t, stream.Send(r))
	}
	for _, typeURL := range []string{envoy.ListenerType, envoy.RouteType, envoy.ClusterType, envoy.EndpointType} {
		if len(names[typeURL]) > 0 {
			send(&discoveryv3.DiscoveryRequest{Node: who, TypeUrl: typeURL, ResourceNames: names[typeURL]})
		}
	}
	latest := map[string][]proto.Message{} // what replaces what came before, of one type
	for more := true; more; {
		select {
		case r, ok := <-answers:
			if !ok {
				t.Fatal("the stream ended")
			}
			latest[r.TypeUrl] = nil
			for _, a := range r.Resources {
				m, err := a.UnmarshalNew()
				must.Succeed(t, err)
				latest[r.TypeUrl] = append(latest[r.TypeUrl], m)
			}
			send(&discoveryv3.DiscoveryRequest{TypeUrl: r.TypeUrl, ResourceNames: names[r.TypeUrl], ResponseNonce: r.Nonce,
				VersionInfo: r.VersionInfo})
		case <-time.After(quiet):
			more = false
		}
	}
	_ = stream.CloseSend()
	for typeURL, list := range latest {
		for _, m := range list { // a server may send more than it is asked for
			if slices.Contains(names[typeURL], nameOf(m)) {
				all = append(all, m)
			}
		}
	}
	return all
}

// nameOf returns the name of a resource.
func nameOf(m proto.Message) string {
	if a, ok := m.(*endpointv3.ClusterLoadAssignment); ok {
		return a.ClusterName
	}
	return m.(interface{ GetName() string }).GetName()
}
