package destinationrule_test

import (
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
)

func rules(t *testing.T, specs ...string) destinationrule.Rules {
	t.Helper()
	var list []*kinds.Object
	for _, s := range specs {
		spec := &networkingv1.DestinationRule{}
		if err := protojson.Unmarshal([]byte(s), spec); err != nil {
			t.Fatal(err)
		}
		list = append(list, &kinds.Object{Key: kinds.Key{Kind: kinds.DestinationRule, Namespace: "a", Name: s[:min(len(s), 8)]}, Spec: spec})
	}
	return frozen.ListOf(list...)
}

// TestResolve shows which setting a policy comes from; each setting has another load balancer.
func TestResolve(t *testing.T) {
	const (
		layered = `{"trafficPolicy":{"loadBalancer":{"simple":"RANDOM"},"tls":{"mode":"DISABLE"},"portLevelSettings":[{"port":{"number":90},"loadBalancer":{"simple":"ROUND_ROBIN"}}]},
			"subsets":[{"name":"plain"},{"name":"own","trafficPolicy":{"loadBalancer":{"simple":"PASSTHROUGH"},"portLevelSettings":[{"port":{"number":90},"tls":{"mode":"SIMPLE"}}]}}]}`
		mute   = `{"subsets":[{"name":"own"},{"name":"more","labels":{"v":"2"}}]}`
		second = `{"trafficPolicy":{"loadBalancer":{"simple":"ROUND_ROBIN"}},"subsets":[{"name":"own","labels":{"v":"1"}},{"name":"last"}]}`
	)
	for _, c := range []struct {
		name   string
		rules  []string
		port   uint32
		subset string
		lb     string // empty: none
		tls    string
	}{
		{"none", nil, 80, "", "", ""},
		{"the rule's", []string{layered}, 80, "", "RANDOM", "DISABLE"},
		{"a port's replaces all four", []string{layered}, 90, "", "ROUND_ROBIN", ""},
		{"a subset without policy", []string{layered}, 80, "plain", "RANDOM", "DISABLE"},
		{"a subset's over the rule's", []string{layered}, 80, "own", "PASSTHROUGH", "DISABLE"},
		{"a subset's port replaces everything", []string{layered}, 90, "own", "", "SIMPLE"},
		{"a subset that does not exist", []string{layered}, 80, "other", "RANDOM", "DISABLE"},
		{"the first that says something", []string{mute, second, layered}, 80, "", "ROUND_ROBIN", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rule, _ := destinationrule.Merge(rules(t, c.rules...)).Rule(c.subset)
			p := rule.Policy(c.port)
			lb, tls := "", ""
			if p.LoadBalancer != nil {
				lb = p.LoadBalancer.GetSimple().String()
			}
			if p.TLS != nil {
				tls = p.TLS.Mode.String()
			}
			if lb != c.lb || tls != c.tls {
				t.Errorf("load balancer %q, tls %q", lb, tls)
			}
		})
	}
	merged := destinationrule.Merge(rules(t, mute, second))
	names := ""
	for _, s := range merged.Subsets {
		names += s.Name + " "
	}
	if names != "own more last " {
		t.Errorf("subsets %s", names)
	}
	if r, ok := merged.Rule("own"); !ok || len(r.Labels()) != 0 {
		t.Errorf("of two subsets with one name not the first: %v", r)
	}
	if !slices.Equal(merged.Repeated, []string{"own"}) {
		t.Errorf("repeated: %v", merged.Repeated)
	}
	first := merged.Limit(2)
	if _, ok := first.Rule("last"); ok || len(first.Subsets) != 2 {
		t.Errorf("of the first two subsets: %v", first.Subsets)
	}
	if _, ok := first.Rule("more"); !ok || merged.Limit(3) != merged || len(merged.Subsets) != 3 {
		t.Errorf("a subset that fits is lost, or the rules have changed: %v", merged.Subsets)
	}
	if r, ok := merged.Rule("none"); ok || len(r.Labels()) != 0 || destinationrule.ServiceRule(rules(t)) != (destinationrule.Rule{}) {
		t.Error("something comes of nothing")
	}
}

// TestApply shows where each setting ends up in a cluster.
func TestApply(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		target       destinationrule.Target
		original     bool // the cluster is ORIGINAL_DST
		cluster      string
		options      string
	}{
		{
			name: "connection pool", policy: `{"connectionPool":{"tcp":{"maxConnections":3,"connectTimeout":"2s","maxConnectionDuration":"9s","tcpKeepalive":{"probes":4,"time":"5s","interval":"6s"}},
				"http":{"http1MaxPendingRequests":5,"http2MaxRequests":6,"maxRetries":7,"idleTimeout":"8s","maxRequestsPerConnection":9}}}`,
			cluster: `{"connectTimeout":"2s","circuitBreakers":{"thresholds":[{"maxConnections":3,"maxPendingRequests":5,"maxRequests":6,"maxRetries":7}]},
				"upstreamConnectionOptions":{"tcpKeepalive":{"keepaliveProbes":4,"keepaliveTime":5,"keepaliveInterval":6}}}`,
			options: `{"commonHttpProtocolOptions":{"idleTimeout":"8s","maxConnectionDuration":"9s","maxRequestsPerConnection":9}}`,
		},
		{name: "upgrade", policy: `{"connectionPool":{"http":{"h2UpgradePolicy":"UPGRADE","maxConcurrentStreams":4}}}`, options: `{"explicitHttpConfig":{"http2ProtocolOptions":{"maxConcurrentStreams":4}}}`},
		{name: "no upgrade of sniffed ports", policy: `{"connectionPool":{"http":{"h2UpgradePolicy":"UPGRADE"}}}`, target: destinationrule.Target{Sniffed: true}},
		{name: "no upgrade inbound", policy: `{"connectionPool":{"http":{"h2UpgradePolicy":"UPGRADE"}}}`, target: destinationrule.Target{Inbound: true}},
		{name: "random", policy: `{"loadBalancer":{"simple":"RANDOM"}}`, cluster: `{"lbPolicy":"RANDOM"}`},
		{name: "round robin with warmup", policy: `{"loadBalancer":{"simple":"ROUND_ROBIN","warmupDurationSecs":"3s"}}`, cluster: `{"lbPolicy":"ROUND_ROBIN","roundRobinLbConfig":{"slowStartConfig":{"slowStartWindow":"3s"}}}`},
		{name: "default with warmup", policy: `{"loadBalancer":{"warmup":{"duration":"3s","minimumPercent":20}}}`, cluster: `{"leastRequestLbConfig":{"slowStartConfig":{"slowStartWindow":"3s","minWeightPercent":{"value":20}}}}`},
		{name: "ring hash", policy: `{"loadBalancer":{"consistentHash":{"httpHeaderName":"x"}}}`, cluster: `{"lbPolicy":"RING_HASH","ringHashLbConfig":{"minimumRingSize":"1024"}}`},
		{name: "ring size", policy: `{"loadBalancer":{"consistentHash":{"httpHeaderName":"x","ringHash":{"minimumRingSize":7}}}}`, cluster: `{"lbPolicy":"RING_HASH","ringHashLbConfig":{"minimumRingSize":"7"}}`},
		{name: "maglev", policy: `{"loadBalancer":{"consistentHash":{"useSourceIp":true,"maglev":{"tableSize":13}}}}`, cluster: `{"lbPolicy":"MAGLEV","maglevLbConfig":{"tableSize":"13"}}`},
		{name: "no load balancer inbound", policy: `{"loadBalancer":{"simple":"RANDOM"},"outlierDetection":{"interval":"1s"}}`, target: destinationrule.Target{Inbound: true}},
		{name: "no load balancer for the original destination", policy: `{"loadBalancer":{"simple":"RANDOM"}}`, original: true},
		{
			name: "outlier detection", policy: `{"outlierDetection":{"consecutive5xxErrors":3,"consecutiveGatewayErrors":0,"interval":"1s","baseEjectionTime":"2s","maxEjectionPercent":50,"minHealthPercent":40}}`,
			cluster: `{"outlierDetection":{"consecutive5xx":3,"enforcingConsecutive5xx":100,"consecutiveGatewayFailure":0,"enforcingConsecutiveGatewayFailure":0,"interval":"1s","baseEjectionTime":"2s",
				"maxEjectionPercent":50,"enforcingSuccessRate":0},"commonLbConfig":{"healthyPanicThreshold":{"value":40}}}`,
		},
		{
			name: "local errors", policy: `{"outlierDetection":{"splitExternalLocalOriginErrors":true,"consecutiveLocalOriginFailures":4}}`,
			cluster: `{"outlierDetection":{"enforcingSuccessRate":0,"splitExternalLocalOriginErrors":true,"consecutiveLocalOriginFailure":4,"enforcingConsecutiveLocalOriginFailure":100,"enforcingLocalOriginSuccessRate":0},
				"commonLbConfig":{"healthyPanicThreshold":{}}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := func() *clusterv3.Cluster {
				b := &clusterv3.Cluster{CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{}}}}
				if c.original {
					b.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
				}
				return b
			}
			got, options := base(), &httpv3.HttpProtocolOptions{}
			destinationrule.Apply(got, options, destinationrule.ServiceRule(rules(t, `{"trafficPolicy":`+c.policy+`}`)).Policy(80), c.target)
			want := base()
			if c.cluster != "" {
				merge(t, c.cluster, want)
			}
			if !proto.Equal(got, want) {
				t.Errorf("cluster\ngot  %v\nwant %v", got, want)
			}
			wantOptions := &httpv3.HttpProtocolOptions{}
			if c.options != "" {
				merge(t, c.options, wantOptions)
			}
			if !proto.Equal(options, wantOptions) {
				t.Errorf("options\ngot  %v\nwant %v", options, wantOptions)
			}
		})
	}
}

func merge(t *testing.T, json string, into proto.Message) {
	t.Helper()
	m := into.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal([]byte(json), m); err != nil {
		t.Fatal(err)
	}
	if c, ok := into.(*clusterv3.Cluster); ok && m.(*clusterv3.Cluster).CircuitBreakers != nil {
		c.CircuitBreakers = nil
	}
	proto.Merge(into, m)
}

func TestHashPolicy(t *testing.T) {
	for _, c := range []struct{ name, rule, want string }{
		{"none", `{}`, ""},
		{"simple", `{"trafficPolicy":{"loadBalancer":{"simple":"RANDOM"}}}`, ""},
		{"header", `{"trafficPolicy":{"loadBalancer":{"consistentHash":{"httpHeaderName":"x"}}}}`, `{"header":{"headerName":"x"}}`},
		{"cookie", `{"trafficPolicy":{"loadBalancer":{"consistentHash":{"httpCookie":{"name":"n","path":"/p","ttl":"3s"}}}}}`, `{"cookie":{"name":"n","path":"/p","ttl":"3s"}}`},
		{"source", `{"trafficPolicy":{"loadBalancer":{"consistentHash":{"useSourceIp":true}}}}`, `{"connectionProperties":{"sourceIp":true}}`},
		{"no source", `{"trafficPolicy":{"loadBalancer":{"consistentHash":{"useSourceIp":false}}}}`, ""},
		{"query", `{"trafficPolicy":{"loadBalancer":{"consistentHash":{"httpQueryParameterName":"q"}}}}`, `{"queryParameter":{"name":"q"}}`},
		{"a port without one", `{"trafficPolicy":{"loadBalancer":{"consistentHash":{"httpHeaderName":"x"}},"portLevelSettings":[{"port":{"number":80},"tls":{"mode":"DISABLE"}}]}}`, `{"header":{"headerName":"x"}}`},
		{"a port's", `{"trafficPolicy":{"loadBalancer":{"consistentHash":{"httpHeaderName":"x"}},"portLevelSettings":[{"port":{"number":80},"loadBalancer":{"consistentHash":{"httpHeaderName":"y"}}}]}}`, `{"header":{"headerName":"y"}}`},
	} {
		got := destinationrule.ServiceRule(rules(t, c.rule)).HashPolicy(80)
		if c.want == "" {
			if got != nil {
				t.Errorf("%s: %v", c.name, got)
			}
			continue
		}
		if len(got) != 1 {
			t.Errorf("%s: %v", c.name, got)
			continue
		}
		want := got[0].ProtoReflect().New().Interface()
		if err := protojson.Unmarshal([]byte(c.want), want); err != nil || !proto.Equal(got[0], want) {
			t.Errorf("%s: %v, want %v (%v)", c.name, got[0], want, err)
		}
	}
}

// TestSetTLS shows the certificates and names of each mode.
func TestSetTLS(t *testing.T) {
	mesh := &corev3.TransportSocket{Name: "mesh"}
	set := func(t *testing.T, tls string, o destinationrule.TLSOptions) (*clusterv3.Cluster, *httpv3.HttpProtocolOptions, *tlsv3.UpstreamTlsContext) {
		t.Helper()
		s := &networkingv1alpha3.ClientTLSSettings{}
		if err := protojson.Unmarshal([]byte(tls), s); err != nil {
			t.Fatal(err)
		}
		c := &clusterv3.Cluster{Metadata: envoy.IstioMetadata(map[string]*structpb.Value{"x": envoy.Text("y")})}
		options := &httpv3.HttpProtocolOptions{}
		o.MTLS = mesh
		destinationrule.SetTLS(c, options, s, o)
		context := &tlsv3.UpstreamTlsContext{}
		if c.GetTransportSocket().GetTypedConfig() != nil {
			if err := c.TransportSocket.GetTypedConfig().UnmarshalTo(context); err != nil {
				t.Fatal(err)
			}
			if err := context.ValidateAll(); err != nil {
				t.Error(err)
			}
		}
		return c, options, context
	}
	if c, _, _ := set(t, `{"mode":"DISABLE"}`, destinationrule.TLSOptions{}); c.TransportSocket != nil {
		t.Error("DISABLE has a socket")
	}
	if c, _, _ := set(t, `{"mode":"ISTIO_MUTUAL"}`, destinationrule.TLSOptions{}); c.TransportSocket != mesh {
		t.Error("ISTIO_MUTUAL has not the mesh's socket")
	}
	root := func(c *tlsv3.UpstreamTlsContext) string {
		return c.CommonTlsContext.GetCombinedValidationContext().GetValidationContextSdsSecretConfig().GetName()
	}
	c, options, simple := set(t, `{"mode":"SIMPLE"}`, destinationrule.TLSOptions{HTTP2: true})
	if root(simple) != "file-root:system" || len(simple.CommonTlsContext.TlsCertificateSdsSecretConfigs) != 0 || !options.UpstreamHttpProtocolOptions.GetAutoSni() ||
		!options.UpstreamHttpProtocolOptions.GetAutoSanValidation() || simple.CommonTlsContext.AlpnProtocols[0] != "h2" {
		t.Errorf("SIMPLE: %v %v", simple, options)
	}
	if c.Metadata.FilterMetadata["istio"].Fields["alpn_override"].GetStringValue() != "false" {
		t.Error("the mesh's protocols are offered outside it")
	}
	_, options, named := set(t, `{"mode":"SIMPLE","sni":"x.example.com","subjectAltNames":["x"],"caCertificates":"/ca.pem"}`, destinationrule.TLSOptions{})
	sans := named.CommonTlsContext.GetCombinedValidationContext().GetDefaultValidationContext().GetMatchSubjectAltNames() //nolint:staticcheck // as on the wire
	if root(named) != "file-root:/ca.pem" || named.Sni != "x.example.com" || len(sans) != 1 || sans[0].GetExact() != "x" || options.UpstreamHttpProtocolOptions != nil {
		t.Errorf("SIMPLE with names: %v %v", named, options)
	}
	_, _, revoked := set(t, `{"mode":"SIMPLE","caCrl":"/crl.pem"}`, destinationrule.TLSOptions{})
	if got := revoked.CommonTlsContext.GetCombinedValidationContext().GetDefaultValidationContext().GetCrl().GetFilename(); got != "/crl.pem" { //nolint:staticcheck // as on the wire
		t.Errorf("SIMPLE with revoked certificates: %q", got)
	}
	_, options, open := set(t, `{"mode":"SIMPLE","insecureSkipVerify":true}`, destinationrule.TLSOptions{})
	if open.CommonTlsContext.GetValidationContext() == nil || options.UpstreamHttpProtocolOptions.GetAutoSanValidation() {
		t.Errorf("insecure: %v %v", open, options)
	}
	_, _, mutual := set(t, `{"mode":"MUTUAL","clientCertificate":"/c.pem","privateKey":"/k.pem","caCertificates":"/ca.pem"}`, destinationrule.TLSOptions{})
	if got := mutual.CommonTlsContext.TlsCertificateSdsSecretConfigs; len(got) != 1 || got[0].Name != "file-cert:/c.pem~/k.pem" {
		t.Errorf("MUTUAL: %v", got)
	}
	_, _, credential := set(t, `{"mode":"MUTUAL","credentialName":"cred"}`, destinationrule.TLSOptions{Router: true})
	if got := credential.CommonTlsContext.TlsCertificateSdsSecretConfigs; got[0].Name != "kubernetes://cred" || root(credential) != "kubernetes://cred-cacert" || got[0].SdsConfig.GetAds() == nil {
		t.Errorf("credential: %v", credential)
	}
}
