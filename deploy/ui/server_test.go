//go:build browser

package ui

import (
	"context"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/served"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// patience is the limit of every wait for the browser.
const patience = time.Minute

// server is a server with a configuration directory.
type server struct {
	*served.Server
	t *testing.T
}

// start starts a server with a mesh, on free ports.
func start(t *testing.T, mesh map[string]string) *server {
	t.Helper()
	return &server{served.Start(t, served.Options{Mesh: mesh}), t}
}

// proxies connects simulated proxies, and returns when the page knows them.
func (s *server) proxies(n int) {
	s.t.Helper()
	s.Load(n, "--namespace", "shop,pay,edge", "--rate", "200")
	s.Eventually("the proxies are connected", func() bool {
		var v struct{ Proxies map[string]int }
		s.Read("/ui/api/summary", &v)
		return v.Proxies["all"] >= n
	})
}

// rejecting connects a proxy that rejects routes whose virtual hosts set a header of that name.
func (s *server) rejecting(pod, namespace, text string) {
	s.t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(func() { cancel(); _ = cc.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx)
	must.Succeed(s.t, err)
	metadata, err := structpb.NewStruct(
		map[string]any{"NAMESPACE": namespace, "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": "10.9.0.1", "ISTIO_VERSION": "1.31.0"})
	must.Succeed(s.t, err)
	const routes = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	n := &corev3.Node{Id: "sidecar~10.9.0.1~" + pod + "." + namespace + "~" + namespace + ".svc.cluster.local", Metadata: metadata}
	must.Succeed(s.t, stream.Send(&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: routes, ResourceNames: []string{"80"}}))
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			answer := &discoveryv3.DiscoveryRequest{TypeUrl: routes, ResourceNames: []string{"80"}, ResponseNonce: m.Nonce,
				VersionInfo: m.VersionInfo}
			for _, r := range m.Resources {
				if strings.Contains(string(r.Value), text) {
					answer.ErrorDetail = &rpcstatus.Status{Code: 13, Message: "route 80: the header " + text + " cannot be set here"}
				}
			}
			if stream.Send(answer) != nil {
				return
			}
		}
	}()
}
