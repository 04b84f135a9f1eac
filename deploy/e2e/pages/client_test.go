package pages

import (
	"context"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const typePrefix = "type.googleapis.com/"

// The types that the client asks for, in this order: each as soon as it has the one before.
const (
	clusters   = typePrefix + "envoy.config.cluster.v3.Cluster"
	endpoints  = typePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	listeners  = typePrefix + "envoy.config.listener.v3.Listener"
	routes     = typePrefix + "envoy.config.route.v3.RouteConfiguration"
	nameTables = typePrefix + "istio.networking.nds.v1.NameTable"
)

// connect has the sidecar of the pod web-0 subscribe to everything by the state of the world, and take it all, until
// the test ends. It returns when that has everything.
func connect(t *testing.T, address string) {
	t.Helper()
	metadata, err := structpb.NewStruct(map[string]any{
		"NAMESPACE": "a", "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": "198.18.0.1", "ISTIO_VERSION": "1.31.0", "SERVICE_ACCOUNT": "web",
		"MESH_ID": "cluster.local",
		"LABELS":  map[string]any{"app": "web", "version": "v1"}, "WORKLOAD_NAME": "web", "DNS_CAPTURE": "true", "DNS_AUTO_ALLOCATE": "true",
		"PROXY_CONFIG": map[string]any{"statusPort": 15020},
	})
	must.Succeed(t, err)
	cc, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = cc.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx)
	must.Succeed(t, err)
	node := &corev3.Node{Id: "sidecar~198.18.0.1~web-0.a~a.svc.cluster.local", Metadata: metadata,
		Locality: &corev3.Locality{Region: "r", Zone: "z", SubZone: "s"}}
	whole := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- take(stream, node, whole) }()
	select {
	case <-whole:
	case err := <-ended:
		t.Fatalf("the stream ended: %v", err)
	case <-time.After(2 * time.Minute):
		t.Fatal("the proxy does not get everything")
	}
}

func take(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, node *corev3.Node, whole chan<- struct{}) error {
	order := []string{clusters, endpoints, listeners, routes, nameTables}
	names := map[string][]string{routes: {"80"}}
	send := func(typeURL string, m *discoveryv3.DiscoveryResponse) error {
		r := &discoveryv3.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: names[typeURL], ResponseNonce: m.GetNonce(),
			VersionInfo: m.GetVersionInfo()}
		if typeURL == clusters && m == nil {
			r.Node = node
		}
		return stream.Send(r)
	}
	if err := send(clusters, nil); err != nil {
		return err
	}
	for next := 1; ; {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, r := range m.Resources {
			if m.TypeUrl != clusters {
				break
			}
			var c clusterv3.Cluster
			if err := r.UnmarshalTo(&c); err != nil {
				return err
			}
			if c.GetType() == clusterv3.Cluster_EDS && !slices.Contains(names[endpoints], c.Name) {
				names[endpoints] = append(names[endpoints], c.Name)
			}
		}
		if err := send(m.TypeUrl, m); err != nil {
			return err
		}
		if next > len(order) || m.TypeUrl != order[next-1] {
			continue
		}
		if next == len(order) {
			close(whole)
		} else if err := send(order[next], nil); err != nil {
			return err
		}
		next++
	}
}
