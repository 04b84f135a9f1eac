package load

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// nowhere is a stream that takes all requests and has no responses.
type nowhere struct{}

func (nowhere) Header() (metadata.MD, error) { return nil, nil }
func (nowhere) Trailer() metadata.MD         { return nil }
func (nowhere) CloseSend() error             { return nil }
func (nowhere) Context() context.Context     { return context.Background() }
func (nowhere) SendMsg(any) error            { return nil }
func (nowhere) RecvMsg(any) error            { return nil }

// BenchmarkFirstClusters measures what a proxy of a large mesh costs the client. The proxy receives 1000 clusters and
// asks for their assignments.
func BenchmarkFirstClusters(b *testing.B) {
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURLs[Clusters], Nonce: "n"}
	for i := range 1000 {
		name := fmt.Sprintf("outbound|80||svc-%d.ns-%d.svc.cluster.local", i, i%20)
		body, err := anypb.New(&clusterv3.Cluster{
			Name: name, ConnectTimeout: durationpb.New(time.Second), ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: name},
		})
		must.Succeed(b, err)
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: fmt.Sprintf("%016x", i), Resource: body})
	}
	message, err := proto.Marshal(r)
	must.Succeed(b, err)
	f := &Fleet{o: Options{Proxies: 1, Logger: slog.New(slog.DiscardHandler)}, names: interner{known: map[string]string{}},
		allSynced: make(chan struct{})}
	b.SetBytes(int64(len(message)))
	b.ReportAllocs()
	for b.Loop() {
		s := &session{proxy: newProxy(f, 0, nil), stream: nowhere{}}
		must.Succeed(b, s.take(message, time.Now()))
	}
}
