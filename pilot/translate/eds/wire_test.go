package eds

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/registry"
)

// TestEndpointsAreEncodedAsByProtobuf compares the hand-written encoder with protobuf's.
func TestEndpointsAreEncodedAsByProtobuf(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		text := func() string { return strings.Repeat("x", []int{0, 1, 20, 100, 127, 128, 300, 20000}[r.IntN(8)]) }
		e := &registry.Endpoint{
			Address:     []string{fmt.Sprint("10.0.0.", seed), "2001:db8::1", "unix:///" + text(), "unix://"}[r.IntN(4)],
			Port:        []uint32{0, 80, 65535}[r.IntN(3)],
			HealthKnown: r.IntN(2) == 0, Health: registry.Health(r.IntN(3)),
			Workload: text(), Namespace: "ns", CanonicalName: text(), CanonicalRevision: "v1", Cluster: text(),
		}
		weight, tls := r.Uint32N(300), r.IntN(2) == 0
		m := map[string]*structpb.Struct{"istio": workloadMetadata(telemetryName(e))}
		if tls {
			m[tlsMatch] = TLSModeIstio()
		}
		want := &endpointv3.LbEndpoint{
			HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: envoy.Address(e.Address, e.Port)}},
			LoadBalancingWeight: envoy.UInt32(weight), Metadata: &corev3.Metadata{FilterMetadata: m},
		}
		if e.HealthKnown {
			want.HealthStatus = [...]corev3.HealthStatus{corev3.HealthStatus_HEALTHY, corev3.HealthStatus_UNHEALTHY,
				corev3.HealthStatus_DRAINING}[e.Health]
		}
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
		must.Succeed(t, err)
		if got := appendEndpoint(nil, e, weight, tls); !bytes.Equal(got, b) {
			t.Fatalf("seed %d: %+v\n%x, want\n%x", seed, e, got, b)
		}
	}
}
