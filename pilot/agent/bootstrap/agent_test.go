package bootstrap

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// with returns a bootstrap for a ProxyConfig in YAML, or the error.
func with(t *testing.T, config string, change func(*Agent)) (*bootstrapv3.Bootstrap, error) {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(config))
	must.Succeed(t, err)
	a := &Agent{Proxy: &meshv1alpha1.ProxyConfig{}, Status: 15020, ReadyPort: 15021, MetricsPort: 15090}
	must.Succeed(t, protojson.Unmarshal(text, a.Proxy))
	if change != nil {
		change(a)
	}
	b, err := New(Options{Node: web(), ADS: "/XDS", SDS: "/SDS", Admin: "127.0.0.1:15000", Agent: a})
	if err == nil {
		err = b.ValidateAll()
	}
	return b, err
}

func clusterOf(t *testing.T, b *bootstrapv3.Bootstrap, name string) *clusterv3.Cluster {
	t.Helper()
	i := slices.IndexFunc(b.GetStaticResources().GetClusters(), func(c *clusterv3.Cluster) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no cluster %s", name)
	}
	return b.GetStaticResources().GetClusters()[i]
}

// TestTLSOfReports checks that certificates come from files or from the mesh, and that without roots the server is
// verified by the system's roots.
func TestTLSOfReports(t *testing.T) {
	for settings, want := range map[string]string{
		"{mode: DISABLE}":                                       "",
		"{mode: ISTIO_MUTUAL}":                                  "default ROOTCA",
		"{mode: SIMPLE}":                                        "system",
		"{mode: SIMPLE, insecureSkipVerify: true}":              "nobody",
		"{mode: SIMPLE, caCertificates: /ca}":                   "file-root:/ca",
		"{mode: MUTUAL, clientCertificate: /c, privateKey: /k}": "file-cert:/c~/k system",
		"{mode: MUTUAL, clientCertificate: /c, privateKey: /k, caCertificates: /ca}": "file-cert:/c~/k file-root:/ca",
	} {
		b, err := with(t, "tracing: {zipkin: {address: 'z.example.com:9411'}, tlsSettings: "+settings+"}", nil)
		must.Succeed(t, err)
		var got []string
		socket := clusterOf(t, b, "zipkin").GetTransportSocket()
		if socket != nil {
			m := &tlsv3.UpstreamTlsContext{}
			must.Succeed(t, socket.GetTypedConfig().UnmarshalTo(m))
			c := m.GetCommonTlsContext()
			for _, s := range c.GetTlsCertificateSdsSecretConfigs() {
				got = append(got, s.GetName())
			}
			switch {
			case c.GetCombinedValidationContext() != nil:
				got = append(got, c.GetCombinedValidationContext().GetValidationContextSdsSecretConfig().GetName())
			case c.GetValidationContext().GetSystemRootCerts() != nil:
				got = append(got, "system")
			default:
				got = append(got, "nobody")
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", settings, got, want)
		}
	}
}

// TestCompliance checks that a policy limits the TLS of reports, and with fips-140-2 Envoy's second gRPC client.
func TestCompliance(t *testing.T) {
	const google = "envoy.reloadable_features.google_grpc_disable_tls_13"
	for policy, want := range map[compliance.Policy]string{
		compliance.None: "TLS_AUTO TLS_AUTO [] false", compliance.FIPS1402: "TLSv1_2 TLSv1_2 [P-256] true",
		compliance.PQC: "TLSv1_3 TLSv1_3 [X25519MLKEM768] false",
	} {
		b, err := with(t, "tracing: {zipkin: {address: 'z.example.com:9411'}, tlsSettings: {mode: SIMPLE}}",
			func(a *Agent) { a.Compliance = policy })
		must.Succeed(t, err)
		m := &tlsv3.UpstreamTlsContext{}
		must.Succeed(t, clusterOf(t, b, "zipkin").GetTransportSocket().GetTypedConfig().UnmarshalTo(m))
		p := m.GetCommonTlsContext().GetTlsParams()
		flag := b.GetLayeredRuntime().GetLayers()[0].GetStaticLayer().GetFields()[google].GetBoolValue()
		got := fmt.Sprint(p.GetTlsMinimumProtocolVersion(), " ", p.GetTlsMaximumProtocolVersion(), " ", p.GetEcdhCurves(), " ", flag)
		if got != want {
			t.Errorf("%q: %s, want %s", policy, got, want)
		}
	}
}

// TestReports checks the clusters and configuration of tracers and metrics services.
func TestReports(t *testing.T) {
	b, err := with(t, "{statsdUdpAddress: '10.0.0.1:8125', envoyMetricsService: {address: 'm:1', tcpKeepalive: {time: 9s, probes: 2}}}",
		func(a *Agent) { a.IPv6 = true })
	must.Succeed(t, err)
	tracing := b.GetTracing() //nolint:staticcheck // The agent uses the deprecated field.
	if len(b.GetStatsSinks()) != 2 || tracing != nil {
		t.Errorf("sinks %v, tracing %v", b.GetStatsSinks(), tracing)
	}
	c := clusterOf(t, b, "envoy_metrics_service")
	if c.GetDnsLookupFamily() != clusterv3.Cluster_V6_ONLY ||
		c.GetUpstreamConnectionOptions().GetTcpKeepalive().GetKeepaliveTime().GetValue() != 9 {
		t.Errorf("%v", c)
	}
	if l := b.GetStaticResources().GetListeners(); len(l) != 2 || l[0].GetAddress().GetSocketAddress().GetAddress() != "::" {
		t.Errorf("listeners %v", l)
	}
}

func TestAgentRefused(t *testing.T) {
	for want, config := range map[string]string{
		`tracing: "z": write HOST:PORT`: "tracing: {zipkin: {address: z}}",
		"statsdUdpAddress":              "statsdUdpAddress: x",
		"needs clientCertificate":       "tracing: {datadog: {address: 'd:1'}, tlsSettings: {mode: MUTUAL}}",
	} {
		if _, err := with(t, config, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := with(
		t, "{}", func(a *Agent) { a.Annotations = map[string]string{"sidecar.istio.io/statsHistogramBuckets": "[]"} },
	); err == nil || !strings.Contains(err.Error(), "statsHistogramBuckets") {
		t.Errorf("buckets: %v", err)
	}
	p := &meshv1alpha1.ProxyConfig{ProxyBootstrapTemplatePath: "x", StatNameLength: 9,
		Tracing: &meshv1alpha1.Tracing{Tracer: &meshv1alpha1.Tracing_Lightstep_{}}}
	if got := Ineffective(p); len(got) != 4 {
		t.Errorf("findings %q", got)
	}
}

// TestStatsIntervals checks that annotations set the intervals at which Envoy flushes and removes metrics, and that an
// interval that Envoy would refuse is named.
func TestStatsIntervals(t *testing.T) {
	for _, c := range []struct{ flush, eviction, wantFlush, wantEviction, wrong string }{
		{},
		{flush: "10s", wantFlush: "10s"},
		{eviction: "1m", wantEviction: "1m0s"},
		{flush: "1500ms", eviction: "3s", wantFlush: "1.5s", wantEviction: "3s"},
		{flush: "1m", eviction: "1h", wantFlush: "1m0s", wantEviction: "1h0m0s"},
		{eviction: "7s", wrong: `statsEvictionInterval: 7s: write a multiple of 5s`},
		{flush: "10s", eviction: "15s", wrong: `statsEvictionInterval: 15s: write a multiple of 10s`},
		{flush: "often", wrong: `statsFlushInterval: "often": write a duration such as 10s`},
		{flush: "5m", wrong: `statsFlushInterval: "5m"`},
		{flush: "0s", wrong: `statsFlushInterval: "0s"`},
		{eviction: "-5s", wrong: `statsEvictionInterval: "-5s"`},
	} {
		b, err := with(t, "{}", func(a *Agent) {
			a.Annotations = map[string]string{names.AnnotationStatsFlushInterval: c.flush, names.AnnotationStatsEvictionInterval: c.eviction}
		})
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		must.Succeed(t, err)
		text := func(d *durationpb.Duration) string {
			if d == nil {
				return ""
			}
			return d.AsDuration().String()
		}
		if flush, eviction := text(b.GetStatsFlushInterval()), text(b.GetStatsEvictionInterval()); flush != c.wantFlush ||
			eviction != c.wantEviction {
			t.Errorf("%+v: flushed every %q, removed after %q", c, flush, eviction)
		}
	}
}

// TestAddressesInPatterns checks that {pod_ip} in a pattern for the names of metrics stands for each address of the
// proxy, in annotations and in ProxyConfig.
func TestAddressesInPatterns(t *testing.T) {
	b, err := with(t, `{proxyStatsMatcher: {inclusionPrefixes: ["http.{pod_ip}_"], inclusionRegexps: ["x.*"]}}`, func(a *Agent) {
		a.Annotations = map[string]string{names.AnnotationStatsInclusionSuffixes: "{pod_ip}_8080,y"}
	})
	must.Succeed(t, err)
	var got []string
	for _, p := range b.GetStatsConfig().GetStatsMatcher().GetInclusionList().GetPatterns() {
		got = append(got, p.GetPrefix()+p.GetSuffix()+p.GetSafeRegex().GetRegex())
	}
	for _, want := range []string{"http.10.0.0.1_", "10.0.0.1_8080", "y", "x.*"} {
		if !slices.Contains(got, want) {
			t.Errorf("no pattern %s: %v", want, got)
		}
	}
}

// TestLocalMetrics checks that Envoy serves metrics for this pod only on its loopback address, and readiness and
// metrics by mutual TLS on all addresses.
func TestLocalMetrics(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		b, err := with(t, "{}", func(a *Agent) {
			a.IPv6, a.LocalMetrics, a.SecureMetricsPort, a.SecureMergedPort = ipv6, true, 15091, 15092
		})
		must.Succeed(t, err)
		want := []string{"127.0.0.1:15090", "0.0.0.0:15021", "0.0.0.0:15091 mutual TLS", "0.0.0.0:15092 mutual TLS"}
		if ipv6 {
			want = []string{"[::1]:15090", "[::]:15021", "[::]:15091 mutual TLS", "[::]:15092 mutual TLS"}
		}
		var got []string
		for _, l := range b.GetStaticResources().GetListeners() {
			at := l.GetAddress().GetSocketAddress()
			text := net.JoinHostPort(at.GetAddress(), strconv.Itoa(int(at.GetPortValue())))
			if s := l.GetFilterChains()[0].GetTransportSocket(); s != nil {
				m := &tlsv3.DownstreamTlsContext{}
				must.Succeed(t, s.GetTypedConfig().UnmarshalTo(m))
				validation := m.GetCommonTlsContext().GetCombinedValidationContext()
				if validation.GetValidationContextSdsSecretConfig().GetName() == "ROOTCA" && m.GetRequireClientCertificate().GetValue() {
					text += " mutual TLS"
				}
			}
			got = append(got, text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("listeners at %v, want %v", got, want)
		}
	}
}
