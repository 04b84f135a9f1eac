package mesh

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func parse(t *testing.T, yaml string) *Config {
	t.Helper()
	c, findings := Parse("mesh.yaml", []byte(yaml))
	if len(findings) > 0 {
		t.Fatalf("findings: %v", findings)
	}
	return c
}

func TestDefault(t *testing.T) {
	c := Default()
	if !c.AutoMTLS() || !c.AllowAny() || !c.InboundPassthrough() || !c.GetLocalityLbSetting().GetEnabled().GetValue() || !c.AttemptCount() {
		t.Error("a default is off that should be on")
	}
	if c.GetConnectTimeout().AsDuration() != 10*time.Second || c.GetProtocolDetectionTimeout().AsDuration() != 0 ||
		c.GetDnsRefreshRate().AsDuration() != time.Minute || c.GetProxyListenPort() != 15001 || c.GetProxyInboundListenPort() != 15006 {
		t.Error("a default number is off")
	}
	if d := cmp.Diff([]string{"cluster.local"}, c.TrustDomains()); d != "" {
		t.Error(d)
	}
	for _, empty := range []string{"", "# nothing\n", "{}", "---\n", "trustDomain:\ndefaultConfig:\n"} {
		if got := parse(t, empty); !got.Equal(c) {
			t.Errorf("%q is not the default: %s", empty, cmp.Diff(c.MeshConfig, got.MeshConfig, protocmp.Transform()))
		}
	}
	if findings := func() []diag.Diagnostic { d := &document{}; d.checkConfig(c); return d.findings }(); len(findings) > 0 {
		t.Errorf("the default does not pass: %v", findings)
	}
}

func TestParse(t *testing.T) {
	c := parse(t, `
# chart defaults, in both spellings
defaultConfig:
  discoveryAddress: istiod.istio-system.svc:15012
  tracing: {sampling: 12.5}
  proxyMetadata: {A: "1"}
  proxyHeaders: {attemptCount: {disabled: true}}
default_providers:
  metrics: [prometheus]
enablePrometheusMerge: false
rootNamespace: istio-config
trustDomain: td.example
trustDomainAliases: [old.example, older]
outboundTrafficPolicy: {mode: REGISTRY_ONLY}
connect_timeout: 500ms
protocolDetectionTimeout: 1.5s
defaultServiceExportTo: ["."]
localityLbSetting: {enabled: false}
extensionProviders:
- name: prometheus
  prometheus: {}
- name: authz
  envoyExtAuthzGrpc: {service: ext.a.svc.cluster.local, port: 9000}
`)
	if c.AllowAny() || c.GetLocalityLbSetting().GetEnabled().GetValue() || c.AttemptCount() || c.GetEnablePrometheusMerge().GetValue() {
		t.Error("a zero value did not replace the default")
	}
	connect, detect := c.GetConnectTimeout().AsDuration(), c.GetProtocolDetectionTimeout().AsDuration()
	if connect != 500*time.Millisecond || detect != 1500*time.Millisecond {
		t.Error("durations", connect, detect)
	}
	if d := cmp.Diff([]string{"td.example", "old.example", "older"}, c.TrustDomains()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"."}, c.GetDefaultServiceExportTo()); d != "" {
		t.Error("lists are replaced: ", d)
	}
	if c.GetDefaultConfig().GetProxyAdminPort() != 15000 ||
		c.GetDefaultConfig().GetTracing().GetSampling() != 12.5 || c.GetDefaultConfig().GetProxyMetadata()["A"] != "1" {
		t.Error("messages are merged", c.GetDefaultConfig())
	}
	var all []string
	for _, p := range c.GetExtensionProviders() {
		all = append(all, p.GetName())
	}
	if d := cmp.Diff([]string{"prometheus", "authz", "stackdriver", "envoy"}, all); d != "" {
		t.Error(d)
	}
	if c.Provider("authz").GetEnvoyExtAuthzGrpc().GetPort() != 9000 || c.Provider("none") != nil {
		t.Error("provider")
	}
}

func TestParseOver(t *testing.T) {
	base := parse(t, "trustDomain: shared\nconnectTimeout: 3s\ndefaultConfig: {proxyMetadata: {A: a, B: b}}")
	before := proto.CloneOf(base.MeshConfig)
	c, findings := ParseOver(base, "", []byte("trustDomain: own\ndefaultConfig: {proxyMetadata: {B: c}}"))
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	if c.GetTrustDomain() != "own" || c.GetConnectTimeout().AsDuration() != 3*time.Second {
		t.Error("layers", c)
	}
	if d := cmp.Diff(map[string]string{"A": "a", "B": "c"}, c.GetDefaultConfig().GetProxyMetadata()); d != "" {
		t.Error(d)
	}
	if !proto.Equal(before, base.MeshConfig) {
		t.Error("the base was changed")
	}
	if c.Equal(base) || !base.Equal(base) || c.Equal(nil) {
		t.Error("Equal")
	}
}

func TestFindings(t *testing.T) {
	for _, c := range []struct {
		yaml string
		want []string // each finding holds one, in order
	}{
		{"trustDomian: x",
			[]string{`m:1:1: error: MeshConfig: trustDomian: there is no field "trustDomian"; did you mean "trustDomain"? [UnknownField]`}},
		{"defaultConfig:\n  tracing:\n    smapling: 1\n",
			[]string{"m:3:5: error: MeshConfig: defaultConfig.tracing.smapling: there is no field"}},
		{"extensionProviders:\n- name: x\n  prometheus: {}\n- name: z\n  envoyOtelAls: {prot: 1}\n",
			[]string{"m:5:18: error: MeshConfig: extensionProviders[1].envoyOtelAls.prot: there is no field \"prot\"; did you mean \"port\"?"}},
		{"connectTimeout: soon", []string{
			`m:1:17: error: MeshConfig: connectTimeout: "soon" is not a duration; write a number with a unit, such as 10s, 500ms or 1h30m`,
		}},
		{"enableAutoMtls: maybe", []string{`m:1:17: error: MeshConfig: enableAutoMtls: "maybe" is not a boolean; write true or false`}},
		{"trustDomain: 12", []string{`m:1:14: error: MeshConfig: trustDomain: 12 is not a string; quote it: "12"`}},
		{"trustDomain: [a]", []string{`m:1:14: error: MeshConfig: trustDomain: a list is not a string; write a string`}},
		{"outboundTrafficPolicy: {mode: NONE}", []string{
			`m:1:31: error: MeshConfig: outboundTrafficPolicy.mode: "NONE" is not a value of this field; use one of REGISTRY_ONLY, ALLOW_ANY`,
		}},
		{"outboundTrafficPolicy: NONE", []string{"m:1:24: error: MeshConfig: outboundTrafficPolicy: must be a mapping"}},
		{"defaultServiceExportTo: '*'", []string{"m:1:25: error: MeshConfig: defaultServiceExportTo: must be a list"}},
		{"trustDomainAliases: [a, [b]]", []string{"m:1:25: error: MeshConfig: trustDomainAliases[1]"}},
		{"trustDomain: a\ntrust_domain: b", []string{"m:2:1: error: MeshConfig: trustDomain: only one of trustDomain and trust_domain"}},
		{"extensionProviders: [{name: x, prometheus: {}, zipkin: {}}]", []string{"only one of prometheus and zipkin"}},
		{"trustDomain: a\n---\ntrustDomain: b", []string{"a second document"}},
		{"a: [\n", []string{"error: MeshConfig: not YAML: "}},
		{"a: b\n c: d", []string{"m:2:1: error: MeshConfig: not YAML: "}},
		{"- a", []string{"m:1:1: error: MeshConfig: must be a mapping"}},
		{"proxyListenPort: 70000", []string{"m:1:18: error: MeshConfig: proxyListenPort: 70000 is not a port"}},
		{"localityLbSetting: {distribute: [{from: a, to: {b: 100}}], failover: [{from: a, to: b}]}",
			[]string{"m:1:20: error: MeshConfig: localityLbSetting: distribute and failover cannot both be set"}},
		{"localityLbSetting: {distribute: [{from: a, to: {b: 50, c: 101}}]}",
			[]string{"distribute[0].to[c]: 101 is not a share", "distribute[0].to: the shares add up to 151"}},
		{"localityLbSetting: {failover: [{from: a, to: a}, {from: a, to: b/c}]}",
			[]string{"failover[0]: a region cannot stand in for itself", "failover[1]: \"a\" or \"b/c\" is not a region"}},
		{"localityLbSetting: {failover: [{from: a, to: b}], failoverPriority: [topology.istio.io/network, topology.kubernetes.io/zone]}",
			[]string{"failoverPriority[1]: failover sorts endpoints by place already"}},
		{"zoneAwareLbSetting: {failover: [{from: a, to: '*'}]}", []string{"zoneAwareLbSetting.failover[0]: \"a\" or \"*\" is not a region"}},
		{"meshMTLS: {ecdhCurves: [P-256]}",
			[]string{"m:1:24: warning: MeshConfig: meshMTLS.ecdhCurves: the curves are in force here, and istiod refuses"}},
		{"defaultInboundHttpRetryPolicy: {attempts: -1, backoff: 1ns, retryOn: 'reset, 503, rest'}", []string{
			"m:1:43: error: MeshConfig: defaultInboundHttpRetryPolicy.attempts: -1 is less than no attempt",
			"defaultInboundHttpRetryPolicy.backoff: 1ns is too short",
			`defaultInboundHttpRetryPolicy.retryOn: unknown retry condition "rest"; did you mean "reset"?`,
		}},
		{"defaultInboundHttpRetryPolicy: {retryOn: reset}",
			[]string{"m:1:32: warning: MeshConfig: defaultInboundHttpRetryPolicy: there are no retries"}},
		{"proxyListenPort: 15006", []string{"proxyInboundListenPort: inbound and outbound traffic cannot share a port"}},
		{"proxyListenPort: 1e99", []string{"is not a whole number"}},
		{"connectTimeout: 0s", []string{"m:1:17: error: MeshConfig: connectTimeout: 0s is too short"}},
		{"trustDomain: Example.com", []string{`m:1:14: error: MeshConfig: trustDomain: "Example.com" is not a trust domain`}},
		{"trustDomainAliases: [ok, 'no/']", []string{"m:1:26: error: MeshConfig: trustDomainAliases[1]: \"no/\" is not a trust domain"}},
		{"trustDomain: ''", []string{`"" is not a trust domain`}},
		{"rootNamespace: a.b", []string{`m:1:16: error: MeshConfig: rootNamespace: "a.b" is not the name of a namespace`}},
		{"defaultVirtualServiceExportTo: ['*', A]", []string{"m:1:38: error: MeshConfig: defaultVirtualServiceExportTo[1]"}},
		{"defaultConfig: {tracing: {sampling: 101}}",
			[]string{"m:1:37: error: MeshConfig: defaultConfig.tracing.sampling: 101 is not a percentage"}},
		{"extensionProviders: [{prometheus: {}}]", []string{"extensionProviders[0].name: a provider must have a name"}},
		{"extensionProviders: [{name: a, prometheus: {}}, {name: a, prometheus: {}}]",
			[]string{"m:1:56: error: MeshConfig: extensionProviders[1].name: two providers"}},
		{"extensionProviders: [{name: a}]", []string{"m:1:22: error: MeshConfig: extensionProviders[0]: provider \"a\" does not say what it is"}},
		{"defaultProviders: {metrics: [nope]}",
			[]string{"m:1:30: warning: MeshConfig: defaultProviders.metrics[0]: there is no extension provider \"nope\""}},
		{"x: 1\nz: 2", []string{"m:1:1", "m:2:1"}},
		{"trustDomain: on", []string{`m:1:14: error: MeshConfig: trustDomain: on is not a string; quote it: "on"`}},
		{"defaultConfig: {proxyMetadata: {A: No}}",
			[]string{`m:1:36: error: MeshConfig: defaultConfig.proxyMetadata[A]: No is not a string; quote it: "No"`}},
		{"defaultConfig: {proxyMetadata: {~: a}}",
			[]string{`m:1:33: error: MeshConfig: defaultConfig.proxyMetadata: ~ is not a name; quote it: "~"`}},
		{"certificates: []", []string{"m:1:1: warning: MeshConfig: certificates: the field is deprecated"}},
	} {
		got, findings := Parse("m", []byte(c.yaml))
		if len(findings) != len(c.want) {
			t.Errorf("%s:\n got %v\nwant %v", c.yaml, findings, c.want)
			continue
		}
		failed := false
		for i, f := range findings {
			failed = failed || f.Severity == diag.Error
			if !strings.Contains(f.String(), c.want[i]) {
				t.Errorf("%s:\n got %s\nwant %s", c.yaml, f, c.want[i])
			}
		}
		if failed != (got == nil) {
			t.Errorf("%s: refused %v", c.yaml, got == nil)
		}
	}
}

// TestPresentAndEmpty has messages that are present and set nothing. Each takes the place of the default as a whole: a
// field that it does not set is zero, not the default.
func TestPresentAndEmpty(t *testing.T) {
	for yaml, want := range map[string]struct {
		field string
		text  string // of the message; empty: it is not set
	}{
		"outboundTrafficPolicy: {}":                  {"outboundTrafficPolicy", "{}"},
		"outboundTrafficPolicy:":                     {"outboundTrafficPolicy", `{"mode":"ALLOW_ANY"}`},
		"inboundTrafficPolicy: {}":                   {"inboundTrafficPolicy", "{}"},
		"localityLbSetting: {}":                      {"localityLbSetting", "{}"},
		"localityLbSetting: {failoverPriority: [a]}": {"localityLbSetting", `{"failoverPriority":["a"]}`},
		"localityLbSetting: {enabled: false}":        {"localityLbSetting", `{"enabled":false}`},
		"tcpKeepalive: {}":                           {"tcpKeepalive", "{}"},
		"defaultProviders: {}":                       {"defaultProviders", "{}"},
		"meshMTLS: {}":                               {"meshMTLS", "{}"},
		"pathNormalization: {}":                      {"pathNormalization", "{}"},
		"defaultHttpRetryPolicy: {}":                 {"defaultHttpRetryPolicy", "{}"},
		"connectTimeout: 0.5s":                       {"connectTimeout", `"0.500s"`},
	} {
		c := parse(t, yaml)
		text, err := protojson.Marshal(c.MeshConfig)
		must.Succeed(t, err)
		var fields map[string]json.RawMessage
		must.Succeed(t, json.Unmarshal(text, &fields))
		if got := strings.ReplaceAll(string(fields[want.field]), " ", ""); got != want.text {
			t.Errorf("%s: got %s, want %s", yaml, got, want.text)
		}
	}
	if parse(t, "outboundTrafficPolicy: {}").AllowAny() {
		t.Error("an empty outboundTrafficPolicy lets everything out")
	}
	base := parse(t, "defaultConfig: {tracing: {sampling: 5}, proxyMetadata: {A: a}, proxyHeaders: {requestId: {}, server: {value: x}}, "+
		"runtimeValues: {a: b}, gatewayTopology: {numTrustedProxies: 2}}")
	over, findings := SalvageProxyConfig(base.GetDefaultConfig(),
		[]byte("tracing: {}\nproxyMetadata: {B: b}\nproxyHeaders: {server: {value: z}}\nruntimeValues: {c: d}\ngatewayTopology: {}"))
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	switch h := over.GetProxyHeaders(); {
	case over.GetTracing().GetSampling() != 0, over.GetGatewayTopology().GetNumTrustedProxies() != 0, len(over.GetRuntimeValues()) != 1:
		t.Errorf("a part of the message below is left: %v", over)
	case len(over.GetProxyMetadata()) != 2, h.GetServer().GetValue() != "z", h.GetRequestId() == nil:
		t.Errorf("proxyMetadata and proxyHeaders are merged: %v", over)
	case over.GetStatusPort() != 15020, base.GetDefaultConfig().GetProxyHeaders().GetServer().GetValue() != "x":
		t.Errorf("%v", base)
	}
}

// TestSalvage takes a text with errors as far as that opens nothing.
func TestSalvage(t *testing.T) {
	const closed = "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n"
	for yaml, providers := range map[string]string{
		"extensionProviders: [{name: a, envoyFileAccessLog: {path: /x}}, {name: a, envoyFileAccessLog: {path: /y}}]": "a=/y",
		"extensionProviders: [{name: a}, {name: b, envoyFileAccessLog: {path: /x}}]":                                 "b=/x",
		"extensionProviders: [{name: a, envoyFileAccessLog: {path: /x}}, {name: a}]":                                 "",
		"extensionProviders: [{name: a, envoyFileAccessLog: {path: 1}}, {name: b, envoyFileAccessLog: {path: /x}}]":  "b=/x",
		"extensionProviders: [{envoyFileAccessLog: {path: /x}}]":                                                     "",
		"accessLogEncoding: json":        "",
		"enableTracing: 'true'":          "",
		"connectTimeout: 0s":             "",
		"connectTimeout: soon":           "",
		"defaultConfig: {tracing: [a]}":  "",
		"newerField: {a: b}":             "",
		"defaultConfig: {newerField: 1}": "",
	} {
		c, findings := Salvage(Default(), "m", []byte(closed+yaml))
		if c == nil || !failed(findings) {
			t.Errorf("%s: %v", yaml, findings)
			continue
		}
		var got []string
		for _, p := range c.ExtensionProviders {
			if p.Name == "a" || p.Name == "b" || p.Name == "" {
				got = append(got, p.Name+"="+p.GetEnvoyFileAccessLog().GetPath())
			}
		}
		switch d := Default(); {
		case strings.Join(got, " ") != providers:
			t.Errorf("%s: providers %v, want %s", yaml, got, providers)
		case c.AllowAny(), !proto.Equal(c.GetConnectTimeout(), d.GetConnectTimeout()), c.GetEnableTracing() != d.GetEnableTracing():
			t.Errorf("%s: %v", yaml, c.Changed())
		case c.Provider("envoy") == nil:
			t.Errorf("%s: the provider that every mesh has is gone", yaml)
		}
	}
	for _, yaml := range []string{
		"outboundTrafficPolicy: {mode: NONE}", "enableAutoMtls: maybe", "trustDomain: [a]", "trustDomain: A", "defaultServiceExportTo: '*'",
		"discoverySelectors: {a: b}", "discoverySelectors: [{matchExpressions: [{key: a, operator: Sometimes}]}]",
		"discoverySelectors: [{matchLabels: {a: b}}, {matchExpressions: [{key: a, operator: In}]}]",
		"discoverySelectors: [{matchLabels: {'a b': c}}]",
		"serviceEntryVisibility: {policies: [{matchingRules: [{}]}]}", "serviceEntryVisibility: {defaultVisibility: SOME}",
		"serviceEntryVisibility: {policies: [{matchingRules: [{namespaceSelector: {matchExpressions: [{key: a, operator: Sometimes}]}}]}]}",
		"pathNormalization: {normalization: ALL}", "rootNamespace: a.b", "extensionProviders: {a: b}", "a: [", "- a",
		"meshMTLS: {minProtocolVersion: TLSV9}",
		"enableTracing: true\noutboundTrafficPolcy: {mode: REGISTRY_ONLY}", "enableTracing: true\noutboundTrafficPolicy: {mod: REGISTRY_ONLY}",
		"kind: IstioOperator\nspec: {meshConfig: {outboundTrafficPolicy: {mode: REGISTRY_ONLY}}}",
		"enableTracing: true\n---\noutboundTrafficPolicy: {mode: REGISTRY_ONLY}",
	} {
		if c, findings := Salvage(Default(), "m", []byte(yaml)); c != nil || !failed(findings) {
			t.Errorf("%s: used, with %v", yaml, findings)
		}
	}
}

// TestRepeatedFields takes the last of several values, as a YAML parser of Kubernetes does.
func TestRepeatedFields(t *testing.T) {
	c, findings := Parse("m", []byte("trustDomain: a\ndefaultConfig: {statusPort: 1, drainDuration: 5s}\ntrustDomain: b\ndefaultConfig: "+
		"{statusPort: 2}\n"))
	if len(findings) != 2 || failed(findings) || findings[0].Line != 1 || findings[0].Code != "DuplicateField" {
		t.Errorf("%v", findings)
	}
	if p := c.GetDefaultConfig(); c.GetTrustDomain() != "b" || p.GetStatusPort() != 2 || p.GetDrainDuration().GetSeconds() != 45 {
		t.Errorf("%v", c)
	}
}

func TestYAML(t *testing.T) {
	c := parse(t, "defaultServiceExportTo: &all ['*', a]\ndefaultVirtualServiceExportTo: *all\n")
	if d := cmp.Diff([]string{"*", "a"}, c.GetDefaultVirtualServiceExportTo()); d != "" {
		t.Error("alias: ", d)
	}
	for _, yaml := range []string{ // a field beside a merge key, and the first of several mappings, precede
		"outboundTrafficPolicy: {mode: REGISTRY_ONLY, <<: {mode: ALLOW_ANY}}",
		"outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n<<: {outboundTrafficPolicy: {mode: ALLOW_ANY}}",
		"<<: [{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}, {outboundTrafficPolicy: {mode: ALLOW_ANY}}]",
		"outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n---\n# nothing\n---\nnull\n",
	} {
		if parse(t, yaml).AllowAny() {
			t.Errorf("%q: open", yaml)
		}
	}
	c = parse(t, "defaultConfig: &c {statusPort: 1}\n")
	if c.GetDefaultConfig().GetStatusPort() != 1 {
		t.Error("anchor")
	}
	for name, yaml := range map[string]string{
		"deep":      "defaultConfig: " + strings.Repeat("{defaultConfig: ", 40) + "1" + strings.Repeat("}", 40),
		"deep list": "trustDomainAliases: [" + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "]",
		"recursive": "defaultConfig: &a {tracing: {customTags: {x: *a}}}",
		"laughs": "defaultConfig:\n  readinessProbe: &a [x,x,x,x,x,x,x,x,x]\ntrustDomainAliases: [&b [*a,*a,*a,*a,*a,*a,*a,*a,*a], " +
			"&c [*b,*b,*b,*b,*b,*b,*b,*b], &d [*c,*c,*c,*c,*c,*c,*c,*c], &e [*d,*d,*d,*d,*d,*d,*d,*d], [*e,*e,*e,*e,*e,*e,*e,*e]]",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if got, findings := Parse("", []byte(yaml)); got != nil || len(findings) == 0 {
			t.Errorf("%s: accepted", name)
		}
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 100<<20 {
			t.Errorf("%s took %d MiB", name, (after.TotalAlloc-before.TotalAlloc)>>20)
		}
	}
}

func TestNetworks(t *testing.T) {
	n, findings := ParseNetworks("n", []byte(`
networks:
  one:
    endpoints: [{fromRegistry: Kubernetes}, {fromCidr: 10.0.0.0/8}]
    gateways: [{address: 192.0.2.1, port: 15443}, {registryServiceName: gw.istio-system.svc.cluster.local, port: 15443, locality: r1/z1}]
  two: {}
`))
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	if len(n.GetNetworks()) != 2 || n.GetNetworks()["one"].GetGateways()[0].GetPort() != 15443 {
		t.Error(n)
	}
	if m, _ := ParseNetworks("", nil); m.Equal(n) || !n.Equal(n) || len(m.GetNetworks()) != 0 {
		t.Error("Equal, or an empty document")
	}
	for yaml, want := range map[string]string{
		"networks: {a: {endpoints: [{}]}}": "n:1:28: error: MeshNetworks: networks[a].endpoints[0]: does not say",
		"networks: {a: {endpoints: [{fromCidr: 10.0.0.0}]}}": "n:1:39: error: MeshNetworks: " +
			"networks[a].endpoints[0].fromCidr: \"10.0.0.0\" is not a CIDR",
		"networks: {a: {gateways: [{port: 1}]}}":                      "networks[a].gateways[0]: does not say where",
		"networks: {a: {gateways: [{address: b, port: 4000000000}]}}": "networks[a].gateways[0].port: ",
		"networks: {a: {gateways: [{address: b}]}}": "n:1:27: error: MeshNetworks: " +
			"networks[a].gateways[0].port: 0 is not a port",
		"networks: {a: {gatways: []}}": "n:1:16: error: MeshNetworks: " +
			"networks[a].gatways: there is no field \"gatways\"; did you mean \"gateways\"?",
		"networks: [a]": "must be a mapping",
	} {
		got, findings := ParseNetworks("n", []byte(yaml))
		if got != nil || len(findings) != 1 || !strings.Contains(findings[0].String(), want) {
			t.Errorf("%s:\n got %v\nwant %s", yaml, findings, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("trustDomain: x\ndefaultConfig: {tracing: {sampling: 1}}"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("<<: {trustDomain: y}\nconnectTimeout: 1s"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, findings := Parse("f", b)
		if c == nil && len(findings) == 0 {
			t.Fatal("refused without a reason")
		}
		if n, findings := ParseNetworks("f", b); n == nil && len(findings) == 0 {
			t.Fatal("refused without a reason")
		}
	})
}
