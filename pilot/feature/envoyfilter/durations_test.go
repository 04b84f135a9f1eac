package envoyfilter

import (
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/encoding/protojson"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestDurations: patches have the durations of Go, and the object stays as it is.
func TestDurations(t *testing.T) {
	p := &networkingv1alpha3.EnvoyFilter_Patch{}
	if err := protojson.Unmarshal([]byte(`{"operation": "MERGE", "value": {"name": "envoy.filters.network.tcp_proxy", "typed_config": {
		"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "idle_timeout": "1h30m"}}}`), p); err != nil {
		t.Fatal(err)
	}
	m, odd, err := decode(networkingv1alpha3.EnvoyFilter_NETWORK_FILTER, p)
	if err != nil || len(odd) > 0 {
		t.Fatal(odd, err)
	}
	tcp := &tcpv3.TcpProxy{}
	must.Succeed(t, m.(*listenerv3.Filter).GetTypedConfig().UnmarshalTo(tcp))
	if got := tcp.GetIdleTimeout().AsDuration(); got != 90*time.Minute {
		t.Error(got)
	}
	if got := p.Value.Fields["typed_config"].GetStructValue().Fields["idle_timeout"].GetStringValue(); got != "1h30m" {
		t.Errorf("the object has %q now", got)
	}
}
