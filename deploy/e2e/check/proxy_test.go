package check

import (
	"bytes"
	"context"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const listeners = "type.googleapis.com/envoy.config.listener.v3.Listener"

// oddFilter makes a listener that fussy rejects.
const oddFilter = `
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: odd, namespace: default}
spec:
  configPatches:
  - applyTo: LISTENER
    match: {context: SIDECAR_OUTBOUND, listener: {name: virtualOutbound}}
    patch: {operation: MERGE, value: {stat_prefix: odd-listener}}
`

// fussy connects a proxy that rejects resources with the text odd-listener.
func fussy(t *testing.T, address string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	must.Succeed(t, err)
	metadata, err := structpb.NewStruct(map[string]any{"NAMESPACE": "default", "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.31.0"})
	must.Succeed(t, err)
	node := &corev3.Node{Id: "sidecar~10.9.9.9~fussy-1.default~default.svc.cluster.local", Metadata: metadata}
	must.Succeed(t, stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: listeners}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		version := ""
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			answer := &discoveryv3.DiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, VersionInfo: r.VersionInfo}
			if slices.ContainsFunc(r.Resources, func(x *anypb.Any) bool { return bytes.Contains(x.Value, []byte("odd-listener")) }) {
				answer.VersionInfo, answer.ErrorDetail = version,
					&statusv3.Status{Code: 3, Message: "Error adding/updating listener(s) virtualOutbound: it is odd"}
			} else {
				version = r.VersionInfo
			}
			if stream.Send(answer) != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = conn.Close()
	})
}
