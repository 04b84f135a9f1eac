package load

import (
	"context"
	"fmt"
	"io"
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

// broken is a stream whose requests fail.
type broken struct{ nowhere }

func (broken) SendMsg(any) error { return io.EOF }

// requests is a stream that keeps all requests.
type requests struct {
	nowhere
	all []*discoveryv3.DeltaDiscoveryRequest
}

func (r *requests) SendMsg(m any) error {
	r.all = append(r.all, m.(*discoveryv3.DeltaDiscoveryRequest))
	return nil
}

// firstClusters returns an encoded response with clusters, and a proxy.
func firstClusters(tb testing.TB, clusters int) (message []byte, newOne func() *proxy) {
	tb.Helper()
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURLs[Clusters], Nonce: "n"}
	for i := range clusters {
		name := fmt.Sprintf("outbound|80||svc-%d.ns-%d.svc.cluster.local", i, i%20)
		body, err := anypb.New(&clusterv3.Cluster{
			Name: name, ConnectTimeout: durationpb.New(time.Second), ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: name},
		})
		must.Succeed(tb, err)
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: fmt.Sprintf("%016x", i), Resource: body})
	}
	message, err := proto.Marshal(r)
	must.Succeed(tb, err)
	f := &Fleet{o: Options{Proxies: 1, Logger: slog.New(slog.DiscardHandler)}, names: interner{known: map[string]string{}},
		allSynced: make(chan struct{})}
	return message, func() *proxy { return newProxy(f, 0, nil) }
}

// TestBrokenStream checks that a proxy whose stream ends before it acknowledged its clusters asks for their assignments
// on the next one, on which it says that it has the clusters.
func TestBrokenStream(t *testing.T) {
	message, newOne := firstClusters(t, 2)
	p := newOne()
	if err := (&session{proxy: p, stream: broken{}}).take(message, time.Now()); err == nil {
		t.Fatal("no error")
	}
	r := &requests{}
	must.Succeed(t, (&session{proxy: p, stream: r}).resume())
	if len(r.all) != 2 || len(r.all[0].InitialResourceVersions) != 2 || len(r.all[1].ResourceNamesSubscribe) != 2 ||
		r.all[1].TypeUrl != typeURLs[Endpoints] {
		t.Errorf("it asks for %v", r.all)
	}
}

// BenchmarkFirstClusters measures what a proxy of a large mesh costs the client. The proxy receives 1000 clusters and
// asks for their assignments.
func BenchmarkFirstClusters(b *testing.B) {
	message, newOne := firstClusters(b, 1000)
	b.SetBytes(int64(len(message)))
	b.ReportAllocs()
	for b.Loop() {
		s := &session{proxy: newOne(), stream: nowhere{}}
		must.Succeed(b, s.take(message, time.Now()))
	}
}
