package wire

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// built is the response as protobuf messages.
func built(r *Response) proto.Message {
	control := &corev3.ControlPlane{Identifier: "me"}
	if !r.Delta {
		m := &discoveryv3.DiscoveryResponse{VersionInfo: r.Version, TypeUrl: r.TypeURL, Nonce: r.Nonce, ControlPlane: control}
		for _, x := range r.Resources {
			a := &anypb.Any{}
			if err := proto.Unmarshal(x.Body, a); err != nil {
				panic(err)
			}
			m.Resources = append(m.Resources, a)
		}
		return m
	}
	m := &discoveryv3.DeltaDiscoveryResponse{
		SystemVersionInfo: r.Version, TypeUrl: r.TypeURL, Nonce: r.Nonce, ControlPlane: control, RemovedResources: r.Removed,
	}
	for i, x := range r.Resources {
		a := &anypb.Any{}
		if err := proto.Unmarshal(x.Body, a); err != nil {
			panic(err)
		}
		v := x.Version
		if r.Versions != nil {
			v = r.Versions[i]
		}
		m.Resources = append(m.Resources, &discoveryv3.Resource{Name: x.Name, Version: v, Resource: a})
	}
	return m
}

// A spliced response is what protobuf would make of it, whatever its size, the first time and again.
func TestResponseEqualsProtobufs(t *testing.T) {
	e := NewEncoder("me")
	for seed := range uint64(300) {
		f := rand.New(rand.NewPCG(seed, 3))
		r := &Response{Delta: f.IntN(2) == 0, TypeURL: envoy.ClusterType, Version: "v", Nonce: fmt.Sprint(seed)}
		for i := range f.IntN(40) {
			size := []int{0, 1, 120, 127, 128, 4000, 5000, 20000}[f.IntN(8)]
			r.Resources = append(r.Resources, envoy.NewResource(fmt.Sprint("name", i), wrapperspb.String(strings.Repeat("x", size))))
			if r.Delta && f.IntN(2) == 0 {
				r.Removed = append(r.Removed, fmt.Sprint("gone", i))
			}
		}
		if r.Delta && f.IntN(2) == 0 {
			r.Versions = []string{}
			for range r.Resources {
				r.Versions = append(r.Versions, fmt.Sprint(f.IntN(1000)))
			}
		}
		want := built(r)
		for range 2 {
			got := want.ProtoReflect().New().Interface()
			must.Succeed(t, proto.Unmarshal(e.Encode(r).Materialize(), got))
			if !proto.Equal(got, want) {
				t.Fatalf("seed %d: got %v, want %v", seed, got, want)
			}
		}
	}
	if e.bytes > recentBytes {
		t.Errorf("%d bytes are kept", e.bytes)
	}
}

// What one stream was sent is not put together again for the next, though each has something of its own.
func TestBlocksAreShared(t *testing.T) {
	e := NewEncoder("")
	var shared []*envoy.Resource
	for i := range 2000 {
		shared = append(shared, envoy.NewResource(fmt.Sprintf("outbound|80||%04d", i), wrapperspb.String(strings.Repeat("x", 100))))
	}
	alone := func(text string) *envoy.Resource {
		return envoy.NewResource("inbound|80||", wrapperspb.String(text))
	}
	e.Encode(&Response{Resources: append([]*envoy.Resource{alone("0")}, shared...)})
	before := e.bytes
	for i := range 10 {
		e.Encode(&Response{Resources: append([]*envoy.Resource{alone(fmt.Sprint(i))}, shared...)})
	}
	if e.bytes > 6*before { // not eleven: a block is as large as chance has it
		t.Errorf("%d bytes are kept after one, %d after ten more", before, e.bytes)
	}
	for i := range 1000 {
		shared[i] = envoy.NewResource(shared[i].Name, wrapperspb.String(strings.Repeat("y", 4000+i%90)))
		e.Encode(&Response{Resources: shared, Delta: i%2 == 0})
	}
	if e.bytes > recentBytes {
		t.Errorf("%d bytes are kept", e.bytes)
	}
}

// TestBlocksInFlight: while one message is being sent, the next one shares its blocks, however many they are. Then the
// garbage collector frees them.
func TestBlocksInFlight(t *testing.T) {
	e := NewEncoder("")
	r := &Response{Delta: true, TypeURL: envoy.ClusterType}
	for i := range 40_000 {
		r.Resources = append(r.Resources, envoy.NewResource(fmt.Sprint(i), wrapperspb.String(strings.Repeat("x", 1000))))
	}
	first, second := e.Encode(r), e.Encode(r)
	if first.Len() < 2*recentBytes || first.Len() != second.Len() {
		t.Fatalf("messages of %d and %d bytes", first.Len(), second.Len())
	}
	shared := 0
	for i := range first {
		if a, b := first[i].ReadOnlyData(), second[i].ReadOnlyData(); &a[0] == &b[0] {
			shared += len(a)
		}
	}
	if shared < first.Len()/100*99 {
		t.Errorf("%d of %d bytes are shared", shared, first.Len())
	}
	first.Free()
	second.Free()
	for range 10 { // cleanups run some time after a collection
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.blocks) != e.recent.Len() {
		t.Errorf("%d blocks are kept, of which %d are recent", len(e.blocks), e.recent.Len())
	}
}

// TestSecretsAreNotCached: responses with secrets are put together each time, and are what protobuf would make of them.
func TestSecretsAreNotCached(t *testing.T) {
	for _, delta := range []bool{false, true} {
		e := NewEncoder("me")
		r := &Response{
			Delta: delta, TypeURL: envoy.SecretType, Version: "v", Nonce: "n",
			Resources: []*envoy.Resource{xdstest.Secret("a", "1"), xdstest.Secret("b", "1")},
		}
		want, err := proto.Marshal(built(r))
		must.Succeed(t, err)
		if got := e.Encode(r).Materialize(); len(got) != len(want) || !strings.Contains(string(got), xdstest.Canary) {
			t.Errorf("delta %t: %d bytes, want %d", delta, len(got), len(want))
		}
		if n := e.recent.Len(); n != 0 {
			t.Errorf("delta %t: %d blocks are cached", delta, n)
		}
		var clusters []*envoy.Resource // So many that not each is a block of its own, wherever a random seed divides them.
		for i := range 100 {
			clusters = append(clusters, xdstest.Resource(fmt.Sprint(i), "1"))
		}
		if e.Encode(&Response{Delta: delta, TypeURL: envoy.ClusterType, Resources: clusters}); e.recent.Len() == 0 {
			t.Errorf("delta %t: clusters are not cached", delta)
		}
	}
}
