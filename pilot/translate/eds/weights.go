package eds

import (
	"maps"
	"math"
	"math/bits"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/registry"
)

// groupEndpoints is the endpoints of one priority group, with unscaled weights.
type groupEndpoints struct {
	direct   []directEndpoint
	gateways map[registry.Gateway]uint64 // weights by gateway
}

// directEndpoint is an endpoint that is called directly, not through a gateway.
type directEndpoint struct {
	*registry.Endpoint
	weight uint64
	tls    bool // whether Envoy uses mTLS for it
}

// addGateways adds the gateways before an endpoint.
func (g *groupEndpoints) addGateways(gateways []registry.Gateway, weight uint64) {
	if g.gateways == nil {
		g.gateways = map[registry.Gateway]uint64{}
	}
	n := uint64(len(gateways))
	for _, w := range gateways {
		g.gateways[w] += (weight + n - 1) / n
	}
}

func (g *groupEndpoints) empty() bool { return len(g.direct)+len(g.gateways) == 0 }

// endpointSize is the approximate length of an encoded endpoint, in bytes.
const endpointSize = 192

// write writes the endpoints, and then the gateways, into their locality. An endpoint behind a gateway always accepts
// mTLS, and nothing else is known of it.
func (g *groupEndpoints) write(l *endpointv3.LocalityLbEndpoints, sum weightSum) {
	if g.empty() {
		return
	}
	l.LoadBalancingWeight = envoy.UInt32(0)
	l.LbEndpoints = make([]*endpointv3.LbEndpoint, 0, len(g.direct)+len(g.gateways))
	for _, m := range g.direct {
		weight := sum.scale(m.weight)
		e := &endpointv3.LbEndpoint{}
		e.ProtoReflect().SetUnknown(appendEndpoint(make([]byte, 0, endpointSize), m.Endpoint, weight, m.tls)) // already encoded
		l.LbEndpoints = append(l.LbEndpoints, e)
		l.LoadBalancingWeight.Value += weight
	}
	for _, w := range slices.SortedFunc(maps.Keys(g.gateways), registry.CompareGateways) {
		weight := sum.scale(g.gateways[w])
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: envoy.Address(w.Address, w.Port)}},
			LoadBalancingWeight: envoy.UInt32(weight),
			Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
				tlsMatch: TLSModeIstio(), "istio": workloadMetadata(";;;;" + w.Cluster),
			}},
		})
		l.LoadBalancingWeight.Value += weight
	}
}

// weightSum is the sum of the weights of one priority, over all of its localities. Envoy rejects an assignment if the
// endpoints of a locality, or the localities of a priority, weigh more than a uint32 can hold.
type weightSum struct{ sum, n uint64 }

func (b weightSum) with(g *groupEndpoints) weightSum {
	for _, m := range g.direct {
		b.sum += m.weight
	}
	for _, w := range g.gateways {
		b.sum += w
	}
	b.n += uint64(len(g.direct) + len(g.gateways))
	return b
}

// scale returns a weight as it is sent: unchanged if Envoy accepts the sum, else in proportion, and at least 1.
func (b weightSum) scale(weight uint64) uint32 {
	if b.sum <= math.MaxUint32 {
		return uint32(weight)
	}
	hi, lo := bits.Mul64(weight, math.MaxUint32-b.n) // rounding may add 1 to each
	fit, _ := bits.Div64(hi, lo, b.sum)
	return uint32(max(fit, 1))
}
