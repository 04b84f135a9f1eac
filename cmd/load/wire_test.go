package load

import (
	"fmt"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// The scanner reads the same from encoded responses as a full decoder.
func TestScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := Type(rapid.IntRange(0, int(types)-1).Draw(t, "type"))
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z|.0-9]{1,20}`), 0, 6, rapid.ID).Draw(t, "names")
		removed := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,9}`), 0, 3).Draw(t, "removed")
		wantChildren := [][]string{}
		delta := &discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: "7", TypeUrl: typeURLs[kind], Nonce: "n", RemovedResources: removed}
		whole := &discoveryv3.DiscoveryResponse{VersionInfo: "7", TypeUrl: typeURLs[kind], Nonce: "n"}
		for _, name := range names {
			m, children := someResource(t, kind, name)
			body := pack(t, m)
			delta.Resources = append(delta.Resources, &discoveryv3.Resource{Name: name, Version: "v", Resource: body})
			whole.Resources = append(whole.Resources, body)
			wantChildren = append(wantChildren, children)
		}
		for _, m := range []proto.Message{delta, whole} {
			b, err := proto.Marshal(m)
			must.Succeed(t, err)
			r, err := parse(b, m == proto.Message(delta), text)
			must.Succeed(t, err)
			if r.kind != kind || r.version != "7" || r.nonce != "n" {
				t.Fatalf("got type %v, version %q, nonce %q", r.kind, r.version, r.nonce)
			}
			gotChildren, named := [][]string{}, map[Type][]Type{Clusters: {Endpoints}, Listeners: {Routes, Secrets}}[kind]
			for i, x := range r.resources {
				if x.name != names[i] {
					t.Fatalf("got name %q, want %q", x.name, names[i])
				}
				var children []string
				for _, child := range named {
					children = append(children, x.children(child)...)
				}
				gotChildren = append(gotChildren, children)
			}
			if diff := cmp.Diff(wantChildren, gotChildren); diff != "" {
				t.Fatalf("what the resources name (-want +got):\n%s", diff)
			}
			if m == proto.Message(delta) && !slices.Equal(r.removed, removed) {
				t.Fatalf("got removed %q, want %q", r.removed, removed)
			}
		}
	})
}

// someResource returns a resource and the names in it, or nil if it has none.
func someResource(t *rapid.T, kind Type, name string) (proto.Message, []string) {
	switch kind {
	case Clusters:
		c := &clusterv3.Cluster{Name: name, ConnectTimeout: durationpb.New(1e9)}
		switch rapid.IntRange(0, 2).Draw(t, "discovery") {
		case 0:
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
			return c, nil
		case 1:
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
			c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3},
				ServiceName: "service of " + name}
			return c, []string{"service of " + name}
		default:
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
			return c, []string{name}
		}
	case Listeners:
		l := &listenerv3.Listener{Name: name}
		var want, wantSecrets []string
		for i := range rapid.IntRange(0, 3).Draw(t, "chains") {
			chain := &listenerv3.FilterChain{Name: "chain", Filters: []*listenerv3.Filter{
				{Name: "tcp", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(t, &tcpv3.TcpProxy{StatPrefix: "s"})}},
			}}
			hcm := &hcmv3.HttpConnectionManager{
				StatPrefix: "s", RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{Name: "inline"}},
			}
			if rapid.Bool().Draw(t, "rds") {
				route := fmt.Sprintf("%s/%d", name, i)
				want = append(want, route)
				hcm.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: route, ConfigSource: &corev3.ConfigSource{}}}
			}
			chain.Filters = append(chain.Filters,
				&listenerv3.Filter{Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(t, hcm)}})
			if i < 2 && rapid.Bool().Draw(t, "tls") {
				secret := fmt.Sprintf("kubernetes://%s-%d", name, i)
				wantSecrets = append(wantSecrets, secret)
				config := &tlsv3.CommonTlsContext{TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: "default"}, {Name: secret}}}
				chain.TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
					TypedConfig: pack(t, &tlsv3.DownstreamTlsContext{CommonTlsContext: config}),
				}}
			}
			if i == 2 {
				l.DefaultFilterChain = chain
			} else {
				l.FilterChains = append(l.FilterChains, chain)
			}
		}
		return l, append(want, wantSecrets...)
	case Endpoints:
		return &endpointv3.ClusterLoadAssignment{ClusterName: name}, nil
	case Secrets:
		return &tlsv3.Secret{Name: name}, nil
	default:
		return &routev3.RouteConfiguration{Name: name}, nil
	}
}

func pack(t *rapid.T, m proto.Message) *anypb.Any {
	body, err := anypb.New(m)
	must.Succeed(t, err)
	return body
}

// parse reads or refuses every message, and does not panic.
func FuzzParse(f *testing.F) {
	good, err := proto.Marshal(
		&discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURLs[Clusters], Nonce: "n", Resources: []*discoveryv3.Resource{{Name: "a"}}})
	must.Succeed(f, err)
	f.Add(good, true)
	f.Add(good[:len(good)-2], true)
	f.Add([]byte{0x0b}, false)
	f.Fuzz(func(t *testing.T, b []byte, delta bool) {
		r, err := parse(b, delta, text)
		if err != nil {
			return
		}
		newSubscription(Routes).update(r, !delta)
	})
}

func text(b []byte) string { return string(b) }

// A truncated response is refused.
func TestTruncated(t *testing.T) {
	b, err := proto.Marshal(&discoveryv3.DiscoveryResponse{VersionInfo: "7", TypeUrl: typeURLs[Routes], Nonce: "nonce"})
	must.Succeed(t, err)
	if _, err := parse(b, false, text); err != nil {
		t.Fatal(err)
	}
	if _, err := parse(b[:len(b)-1], false, text); err == nil {
		t.Error("half a nonce was taken")
	}
	if _, err := parse(b[:3], false, text); err == nil {
		t.Error("a response without a type was taken")
	}
}
