package envoyfilter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/envoyfilter"
)

// TestLeftOut applies patches to a cluster. Those with which Envoy would refuse it are left out and are findings that
// name the patch. The others apply, and the cluster that was given stays as it is.
func TestLeftOut(t *testing.T) {
	spec := &networkingv1alpha3.EnvoyFilter{}
	if err := protojson.Unmarshal([]byte(`{"configPatches": [
		{"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": {"connect_timeout": "3s"}}},
		{"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": {"connect_timeout": "-4s"}}},
		{"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": {"eds_cluster_config": {"service_name": "x"}}}},
		{"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": {"name": "renamed", "alt_stat_name": "x"}}}
	]}`), spec); err != nil {
		t.Fatal(err)
	}
	o := &kinds.Object{Key: kinds.Key{Kind: kinds.EnvoyFilter, Namespace: "a", Name: "x"}, Position: "a.yaml:3:1", Spec: spec}
	f := envoyfilter.New()
	target := feature.PatchTarget{Type: envoy.ClusterType, Direction: feature.Outbound, Name: "c"}
	patches := f.Patches.Of(feature.Of(o), target)(target)
	if len(patches) != 4 {
		t.Fatalf("%d patches", len(patches))
	}
	was := &clusterv3.Cluster{Name: "c", ConnectTimeout: durationpb.New(1e9)}
	before := proto.Clone(was)
	m, notes := f.Patches.Apply(patches, target, was)
	want := &clusterv3.Cluster{Name: "c", ConnectTimeout: durationpb.New(3e9), AltStatName: "x"}
	if !proto.Equal(m, want) || !proto.Equal(was, before) {
		t.Errorf("%v of %v", m, was)
	}
	var texts []string
	for _, d := range f.Patches.Findings(nil, notes) {
		texts = append(texts, d.String())
	}
	slices.Sort(texts)
	for i, part := range []string{
		"a.yaml:3:1: warning: EnvoyFilter a/x: spec.configPatches[1]: the patch is left out of c: ",
		"a.yaml:3:1: warning: EnvoyFilter a/x: spec.configPatches[2]: the patch is left out of c: ",
	} {
		if len(texts) != 2 || !strings.HasPrefix(texts[i], part) {
			t.Errorf("findings %q, want one of %q", texts, part)
		}
	}
}

// TestMerges: a patch that cannot be merged changes nothing of the message. A wrapped zero replaces nothing. A
// transport socket that the cluster does not choose from is not dropped without a word.
func TestMerges(t *testing.T) {
	const tls = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
	broken := &corev3.TransportSocket{Name: "t", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: tls,
		Value: []byte{0xff}}}}
	limit := wrapperspb.UInt32(5)
	for _, test := range []struct {
		value     string
		was, want *clusterv3.Cluster
		reason    string
	}{
		{
			`{"alt_stat_name": "x", "per_connection_buffer_limit_bytes": 7, "transport_socket": {"name": "t", "typed_config": {"@type": "` +
				tls + `", "sni": "y"}}}`,
			&clusterv3.Cluster{Name: "c", PerConnectionBufferLimitBytes: limit, TransportSocket: broken}, nil, "cannot be merged",
		},
		{`{"per_connection_buffer_limit_bytes": 0}`, &clusterv3.Cluster{Name: "c", PerConnectionBufferLimitBytes: limit},
			&clusterv3.Cluster{Name: "c", PerConnectionBufferLimitBytes: limit}, ""},
		{
			`{"alt_stat_name": "x", "transport_socket": {"name": "other"}}`,
			&clusterv3.Cluster{Name: "c", TransportSocketMatches: []*clusterv3.Cluster_TransportSocketMatch{{Name: "m",
				TransportSocket: &corev3.TransportSocket{Name: "t"}}}}, nil, `named "other"`,
		},
	} {
		spec := &networkingv1alpha3.EnvoyFilter{}
		must.Succeed(t, protojson.Unmarshal(
			[]byte(`{"configPatches": [{"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": `+test.value+`}}]}`), spec,
		))
		o := &kinds.Object{Key: kinds.Key{Kind: kinds.EnvoyFilter, Namespace: "a", Name: "x"}, Spec: spec}
		f := envoyfilter.New()
		if test.want == nil {
			test.want = test.was
		}
		m, notes := f.Patches.Apply([]feature.Patch{{Object: o}},
			feature.PatchTarget{Type: envoy.ClusterType, Direction: feature.Outbound, Name: "c"}, test.was)
		if !proto.Equal(m, test.want) || len(notes) != 1 || !strings.Contains(notes[0].Reason, test.reason) ||
			(test.reason == "") != (notes[0].Reason == "") {
			t.Errorf("%s: %v, %v", test.value, m, notes)
		}
	}
}

// TestPortsOfVirtualListeners shows which patches apply to a virtual listener by a port: a listener filter by any port,
// a network filter in the chains for the port, and a patch of the listener by the listener's own port.
func TestPortsOfVirtualListeners(t *testing.T) {
	chain := func(name string, port uint32) *listenerv3.FilterChain {
		return &listenerv3.FilterChain{Name: name, FilterChainMatch: &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(port)}}
	}
	for _, virtual := range []struct {
		name, context string
		direction     feature.Direction
		own           uint32
	}{{"virtualInbound", "SIDECAR_INBOUND", feature.Inbound, 15006}, {"virtualOutbound", "SIDECAR_OUTBOUND", feature.Outbound, 15001}} {
		was := &listenerv3.Listener{
			Name: virtual.name, Address: envoy.Address("0.0.0.0", virtual.own),
			FilterChains:       []*listenerv3.FilterChain{chain("own", virtual.own), chain("other", 80)},
			DefaultFilterChain: &listenerv3.FilterChain{Name: "rest"},
		}
		for port, want := range map[uint32]string{
			virtual.own: "listener, listener filter, own", 80: "listener filter, other", 4711: "listener filter",
		} {
			spec := &networkingv1alpha3.EnvoyFilter{}
			match := fmt.Sprintf(`"match": {"context": %q, "listener": {"portNumber": %d}}`, virtual.context, port)
			text := strings.NewReplacer("$MATCH", match).Replace(
				`{"configPatches": [
				{"applyTo": "LISTENER", $MATCH, "patch": {"operation": "MERGE", "value": {"stat_prefix": "x"}}},
				{"applyTo": "LISTENER_FILTER", $MATCH, "patch": {"operation": "INSERT_FIRST", "value": {"name": "x"}}},
				{"applyTo": "NETWORK_FILTER", $MATCH, "patch": {"operation": "INSERT_FIRST", "value": {"name": "x"}}}
			]}`)
			must.Succeed(t, protojson.Unmarshal([]byte(text), spec))
			f := envoyfilter.New()
			target := feature.PatchTarget{Type: envoy.ListenerType, Direction: virtual.direction, Name: virtual.name}
			o := &kinds.Object{Key: kinds.Key{Kind: kinds.EnvoyFilter, Namespace: "a", Name: "x"}, Spec: spec}
			m, _ := f.Patches.Apply(f.Patches.Of(feature.Of(o), target)(target), target, was)
			l, got := m.(*listenerv3.Listener), []string(nil)
			if l.GetStatPrefix() != "" {
				got = append(got, "listener")
			}
			if len(l.GetListenerFilters()) > 0 {
				got = append(got, "listener filter")
			}
			for _, c := range append(l.GetFilterChains(), l.GetDefaultFilterChain()) {
				if len(c.GetFilters()) > 0 {
					got = append(got, c.GetName())
				}
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("%s, port %d: the patches changed %q, want %q", virtual.name, port, got, want)
			}
		}
	}
}
