package envoy_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestTypeURLs: the URLs of the table are those of the messages.
func TestTypeURLs(t *testing.T) {
	for short, m := range map[string]proto.Message{
		"cds": &clusterv3.Cluster{}, "eds": &endpointv3.ClusterLoadAssignment{}, "lds": &listenerv3.Listener{},
		"rds": &routev3.RouteConfiguration{}, "vhds": &routev3.VirtualHost{}, "sds": &tlsv3.Secret{},
		"ecds": &corev3.TypedExtensionConfig{}, "pcds": &meshv1alpha1.ProxyConfig{},
	} {
		url := "type.googleapis.com/" + string(proto.MessageName(m))
		if got := envoy.TypeOf(url); got.Short != short || got.URL != url || !got.Known() {
			t.Errorf("%s is %+v", url, got)
		}
		if envoy.TypeURL([]byte(url)) != url || envoy.ShortType(url) != short {
			t.Errorf("%s: %s %s", url, envoy.TypeURL([]byte(url)), envoy.ShortType(url))
		}
	}
	for _, short := range envoy.ShortTypes() {
		if envoy.ShortType(short) != envoy.UnknownShort {
			t.Errorf("%s is no URL", short)
		}
	}
}

// TestOrderOfTypes: what is referred to comes first and goes last, and what nobody knows comes after all.
func TestOrderOfTypes(t *testing.T) {
	order := []string{
		envoy.ClusterType, envoy.EndpointType, envoy.ListenerType, envoy.RouteType, envoy.VirtualHostType, envoy.SecretType,
		"what.Ever",
	}
	for i := range order[1:] {
		if a, b := envoy.TypeOf(order[i]), envoy.TypeOf(order[i+1]); a.Addition >= b.Addition {
			t.Errorf("%s does not come before %s", a.Short, b.Short)
		}
	}
	clusters, listeners := envoy.TypeOf(envoy.ClusterType), envoy.TypeOf(envoy.ListenerType)
	for _, url := range append(order, envoy.NameTableType, envoy.ExtensionType) {
		x := envoy.TypeOf(url)
		if x.Removal < 0 || x.Removal >= envoy.Removals {
			t.Errorf("%s is removed in pass %d of %d", url, x.Removal, envoy.Removals)
		}
		if x.Removal < listeners.Removal || x.Removal > clusters.Removal {
			t.Errorf("%s is removed before listeners or after clusters", url)
		}
	}
	if x := envoy.TypeOf("what.Ever"); x.Known() || x.URL != "what.Ever" {
		t.Errorf("an unknown type is %+v", x)
	}
}
