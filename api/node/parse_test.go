package node

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func decode(t testing.TB, json string) *corev3.Node {
	t.Helper()
	n := &corev3.Node{}
	must.Succeed(t, protojson.Unmarshal([]byte(json), n))
	return n
}

const whole = `{
 "id": "sidecar~10.1.0.1~web-v1-0.a~a.svc.cluster.local", "cluster": "web.a",
 "metadata": {
  "NAMESPACE": "a", "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.31.0", "ISTIO_REVISION": "default",
  "INSTANCE_IPS": "10.1.0.1, fd00::1,10.1.0.1",
  "SERVICE_ACCOUNT": "web", "WORKLOAD_NAME": "web", "MESH_ID": "mesh", "NODE_NAME": "node-1", "NETWORK": "n1",
  "REQUESTED_NETWORK_VIEW": "n1,,n2",
  "LABELS": {"app": "web"}, "STATIC_LABELS": {"app": "other", "static": "yes"},
  "ANNOTATIONS": {"proxy.istio.io/config": "x", "istio.io/rev": "r",
    "kubectl.kubernetes.io/last-applied-configuration": "long", "notistio.io/x": "y"},
  "ENVOY_STATUS_PORT": 15021, "ENVOY_PROMETHEUS_PORT": "15090",
  "ENVOY_SECURE_METRICS_PORT": 15091, "ENVOY_SECURE_MERGED_METRICS_PORT": "15092",
  "PROXY_CONFIG": {"statusPort": 15020, "proxyAdminPort": 15000, "tracing": {"sampling": 12.5},
    "gatewayTopology": {"numTrustedProxies": 2}},
  "INTERCEPTION_MODE": "TPROXY", "HTTP_PROXY_PORT": "8002", "GENERATOR": "api", "OWNER": "kubernetes://x", "NAME": "web-v1-0",
  "TLS_CLIENT_CERT_CHAIN": "/c", "TLS_CLIENT_KEY": "/k", "TLS_CLIENT_ROOT_CERT": "/r", "TLS_SERVER_CERT_CHAIN": "/d",
  "TLS_SERVER_KEY": "/l", "HTTP10": "1", "IDLE_TIMEOUT": "4h", "INBOUND_LISTENER_EXACT_BALANCE": "true",
  "OUTBOUND_LISTENER_EXACT_BALANCE": "1",
  "UNPRIVILEGED_POD": "true", "DNS_CAPTURE": true, "DNS_AUTO_ALLOCATE": "true", "ENABLE_SELF_DISCOVERY": "true"
 },
 "locality": {"region": "r1", "zone": "z1", "subZone": "s1"},
 "userAgentName": "envoy", "userAgentBuildVersion": {"version": {"majorNumber": 1, "minorNumber": 40, "patch": 2}},
 "extensions": [
  {"category": "envoy.filters.http", "typeUrls": ["istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig"]},
  {"category": "envoy.filters.http", "typeUrls": ["other", "type.googleapis.com/io.istio.http.peer_metadata.Config"]},
  {"category": "envoy.filters.http", "typeUrls": ["stats.PluginConfig"]},
  {"category": "envoy.filters.network", "typeUrls": ["type.googleapis.com/stats.PluginConfig"]},
  {"category": "envoy.filters.network", "typeUrls": ["envoy.tcp.metadataexchange.config.MetadataExchange"]},
  {"name": "istio_authn", "category": "envoy.filters.http"}
 ]
}`

func TestParseWhole(t *testing.T) {
	settings, err := mesh.Settings(
		&structpb.Struct{Fields: map[string]*structpb.Value{"gatewayTopology": structpb.NewStructValue(&structpb.Struct{
			Fields: map[string]*structpb.Value{"numTrustedProxies": structpb.NewNumberValue(2)},
		})}})
	if err != nil || settings == "" {
		t.Fatal(settings, err)
	}
	tracing, err := mesh.OwnTracing(&structpb.Struct{Fields: map[string]*structpb.Value{"tracing": structpb.NewStructValue(&structpb.Struct{
		Fields: map[string]*structpb.Value{"sampling": structpb.NewNumberValue(12.5)},
	})}})
	if err != nil || tracing == "" {
		t.Fatal(tracing, err)
	}
	got, err := Parse(decode(t, whole))
	must.Succeed(t, err)
	want := &Proxy{
		Type: Sidecar, ID: "web-v1-0.a", Name: "web-v1-0", Namespace: "a", Domain: "a.svc.cluster.local",
		IPs: []string{"10.1.0.1", "fd00::1"}, Cluster: "Kubernetes", Service: "web.a",
		Network: "n1", NetworkView: []string{"n1", "n2"}, NodeName: "node-1", Workload: "web",
		Account: "web", MeshID: "mesh", Labels: map[string]string{"app": "web", "static": "yes"},
		Others: frozen.ListOf(Text{"IDLE_TIMEOUT", "4h"}, Text{"OWNER", "kubernetes://x"},
			Text{"TLS_CLIENT_CERT_CHAIN", "/c"}, Text{"TLS_CLIENT_KEY", "/k"},
			Text{"TLS_CLIENT_ROOT_CERT", "/r"}, Text{"TLS_SERVER_CERT_CHAIN", "/d"}, Text{"TLS_SERVER_KEY", "/l"}),
		ClientFiles: Files{"/c", "/k", "/r"},
		Annotations: map[string]string{"proxy.istio.io/config": "x", "istio.io/rev": "r"},
		Locality:    [3]string{"r1", "z1", "s1"}, Interception: TPROXY,
		Version: "1.31.0", Revision: "default", Envoy: [3]uint32{1, 40, 2}, Generator: "api",
		Capabilities: HTTPPeerMetadata | NetworkMetadataExchange | ALPNFilter | HTTPStats | NetworkStats | VHDS | RecentCommands,
		StatusPort:   15021, MetricsPort: 15090, SecurePorts: [2]uint32{15091, 15092}, AgentPort: 15020, AdminPort: 15000,
		HTTPProxyPort: 8002, Tuning: Tuning{HTTP10: true, IdleTimeout: 4 * time.Hour,
			InboundExactBalance: true, OutboundExactBalance: true, ServerFiles: Files{Chain: "/d", Key: "/l"}},
		Unprivileged: true, DNSCapture: true, DNSAutoAllocate: true, SelfDiscovery: true, ProxyConfig: true, Tracing: tracing, Settings: settings,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestOtherTextsAreBounded: what a proxy keeps of a node, also for EnvoyFilters alone, has a bound in all.
func TestOtherTextsAreBounded(t *testing.T) {
	text := func(n int) *structpb.Value { return structpb.NewStringValue(strings.Repeat("x", n)) }
	n := &corev3.Node{Id: "sidecar~1.1.1.1~x.a~a.d", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		"LABELS": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"app": text(maxKept - 1000)}}),
	}}}
	for i := range maxTexts {
		n.Metadata.Fields[fmt.Sprintf("OTHER_%02d", i)] = text(maxText)
	}
	p, err := Parse(n)
	must.Succeed(t, err)
	kept := 0
	for o := range p.Others.All {
		kept += len(o.Key) + len(o.Value)
	}
	if kept == 0 || kept > 1000 || p.Labels["app"] == "" {
		t.Errorf("%d bytes of other texts are kept beside %d of a label", kept, len(p.Labels["app"]))
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, node string
		want       func(*Proxy) bool
	}{
		{"router", `{"id":"router~10.0.0.1~gw.x.istio-system~istio-system.svc.cluster.local"}`, func(p *Proxy) bool {
			return p.Type == Router && p.Name == "gw.x" && p.Namespace == "istio-system" &&
				p.Interception == Redirect && p.Capabilities == 0 && !p.ProxyConfig
		}},
		{"no address", `{"id":"sidecar~~x.a~a.svc.cluster.local"}`, func(p *Proxy) bool { return p.IPs == nil }},
		{"address of the id", `{"id":"sidecar~::ffff:10.0.0.9~x.a~d","metadata":{"INSTANCE_IPS":"nonsense"}}`,
			func(p *Proxy) bool { return cmp.Equal(p.IPs, []string{"10.0.0.9"}) }},
		{"id without a dot", `{"id":"sidecar~1.1.1.1~x~"}`, func(p *Proxy) bool { return p.Name == "x" && p.Namespace == "" }},
		{"nulls", `{"id":"sidecar~1.1.1.1~x.a~a.d","metadata":{"LABELS":null,"NAMESPACE":null,"PROXY_CONFIG":null,"HTTP10":null}}`,
			func(p *Proxy) bool { return p.Namespace == "a" && p.Labels == nil && !p.ProxyConfig }},
		{"NONE", `{"id":"sidecar~1.1.1.1~x.a~a.d","metadata":{"INTERCEPTION_MODE":"NONE"}}`,
			func(p *Proxy) bool { return p.Interception == None }},
		{"unknown interception", `{"id":"sidecar~1.1.1.1~x.a~a.d","metadata":{"INTERCEPTION_MODE":"x"}}`,
			func(p *Proxy) bool { return p.Interception == Redirect }},
		{"proxy config without tracing", `{"id":"sidecar~1.1.1.1~x.a~a.d","metadata":{"PROXY_CONFIG":{}}}`,
			func(p *Proxy) bool { return p.ProxyConfig && p.Tracing == "" }},
		{"registers", `{"id":"sidecar~1.1.1.1~x.a~a.d","metadata":{"AUTO_REGISTER_GROUP":"reviews",` +
			`"PROXY_CONFIG":{"readinessProbe":{"httpGet":{"port":80}}}}}`,
			func(p *Proxy) bool { return p.RegisterGroup == "reviews" && p.ReadinessProbe }},
		{"sampling in quotes", `{"id":"sidecar~1.1.1.1~x.a~a.d","metadata":{"PROXY_CONFIG":{"tracing":{"sampling":"50"}}}}`,
			func(p *Proxy) bool { return mesh.Default().Tracing(p.Tracing).GetSampling() == 50 }},
		{"port as a number", `{"id":"sidecar~1.1.1.1~x.a~a.d","metadata":{"HTTP_PROXY_PORT":15007}}`,
			func(p *Proxy) bool { return p.HTTPProxyPort == 15007 }},
		{"idle timeout of none", `{"id":"sidecar~1.1.1.1~x.a~a.d","metadata":{"IDLE_TIMEOUT":"0s"}}`,
			func(p *Proxy) bool { return p.IdleTimeout == -1 }},
		{"idle timeout that is none", `{"id":"sidecar~1.1.1.1~x.a~a.d","metadata":{"IDLE_TIMEOUT":"four hours"}}`,
			func(p *Proxy) bool { return p.IdleTimeout == 0 }},
		{"negative idle timeout", `{"id":"sidecar~1.1.1.1~x.a~a.d","metadata":{"IDLE_TIMEOUT":"-4h"}}`,
			func(p *Proxy) bool { return p.IdleTimeout == 0 }},
		{"envoy 1.36", `{"id":"sidecar~1.1.1.1~x.a~a.d","userAgentBuildVersion":{"version":{"majorNumber":1,"minorNumber":36}}}`,
			func(p *Proxy) bool { return p.Capabilities == 0 }},
		{"envoy 1.37", `{"id":"sidecar~1.1.1.1~x.a~a.d","userAgentBuildVersion":{"version":{"majorNumber":1,"minorNumber":37}}}`,
			func(p *Proxy) bool { return p.Capabilities == VHDS }},
		{"envoy 2.0", `{"id":"sidecar~1.1.1.1~x.a~a.d","userAgentBuildVersion":{"version":{"majorNumber":2}}}`,
			func(p *Proxy) bool { return p.Capabilities.Has(VHDS) }},
		{"wrong category", `{"id":"sidecar~1.1.1.1~x.a~a.d","extensions":[{"category":"envoy.filters.network",` +
			`"typeUrls":["io.istio.http.peer_metadata.Config"]}]}`, func(p *Proxy) bool { return p.Capabilities == 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse(decode(t, c.node))
			must.Succeed(t, err)
			if !c.want(p) {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	if _, err := Parse(nil); err == nil {
		t.Error("a nil node was served")
	}
	for _, c := range []struct{ name, node, want string }{
		{"empty", `{}`, "node id is empty"},
		{"three parts", `{"id":"sidecar~1.1.1.1~x.a"}`, "has 3 parts"},
		{"five parts", `{"id":"sidecar~1.1.1.1~x.a~d~e"}`, "has 5 parts"},
		{"nobody", `{"id":"sidecar~~~"}`, "does not say who the proxy is"},
		{"newline", `{"id":"sidecar~1.1.1.1~x.a\n~d"}`, "control characters"},
		{"ztunnel", `{"id":"ztunnel~1.1.1.1~x.a~d"}`, `type "ztunnel" are not served`},
		{"unknown type", `{"id":"Sidecar~1.1.1.1~x.a~d"}`, `unknown proxy type "Sidecar"`},
		{"bad address", `{"id":"sidecar~localhost~x.a~d"}`, "is not an IP address"},
		{"long id", `{"id":"sidecar~1.1.1.1~` + strings.Repeat("x", 1<<20) + `~d"}`, "at most 1024"},
		{"addresses", `{"id":"sidecar~1.1.1.1~x.a~d","metadata":{"INSTANCE_IPS":1}}`, "INSTANCE_IPS must be a string, not the number 1"},
		{"label", `{"id":"sidecar~1.1.1.1~x.a~d","metadata":{"LABELS":{"a":true}}}`, "LABELS must be an object of strings, not true"},
		{"flag", `{"id":"sidecar~1.1.1.1~x.a~d","metadata":{"HTTP10":"yes"}}`, `HTTP10 must be "true" or "false"`},
		{"port", `{"id":"sidecar~1.1.1.1~x.a~d","metadata":{"HTTP_PROXY_PORT":"70000"}}`, "HTTP_PROXY_PORT must be a port number"},
		{"port fraction", `{"id":"sidecar~1.1.1.1~x.a~d","metadata":{"HTTP_PROXY_PORT":1.5}}`, "HTTP_PROXY_PORT must be a port number"},
		{"sampling", `{"id":"sidecar~1.1.1.1~x.a~d","metadata":{"PROXY_CONFIG":{"tracing":{"sampling":"lots"}}}}`, "sampling"},
		{"too many labels", `{"id":"sidecar~1.1.1.1~x.a~d","metadata":{"LABELS":{"a":"` + strings.Repeat("x", maxKept) + `"}}}`, "is too large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse(decode(t, c.node))
			if err == nil {
				t.Fatalf("served: %+v", p)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, want %q in it", err, c.want)
			}
			if len(err.Error()) > 2048 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
	if _, err := Parse(&corev3.Node{Id: "sidecar~1.1.1.1~\xff~d"}); err == nil {
		t.Error("an id that is not UTF-8 was served")
	}
}

func nested(levels int) *structpb.Value {
	v := structpb.NewStringValue("x")
	for i := range levels {
		if i%2 == 0 {
			v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
		} else {
			v = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"k": v}})
		}
	}
	return v
}

func TestParseDepth(t *testing.T) {
	for levels, ok := range map[int]bool{0: true, maxDepth: true, maxDepth + 1: false, 10000: false} {
		_, err := Parse(
			&corev3.Node{Id: "sidecar~1.1.1.1~x.a~d", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"ANY": nested(levels)}}})
		if (err == nil) != ok {
			t.Errorf("%d levels: %v", levels, err)
		}
	}
}

// known are keys of istiod's and its agent's.
const known = `
	ISTIO_VERSION ISTIO_REVISION CLUSTER_ID NAMESPACE LABELS STATIC_LABELS ANNOTATIONS INSTANCE_IPS NODE_NAME
	WORKLOAD_NAME SERVICE_ACCOUNT NETWORK REQUESTED_NETWORK_VIEW MESH_ID INTERCEPTION_MODE POD_PORTS HTTP_PROXY_PORT
	GENERATOR DNS_CAPTURE DNS_AUTO_ALLOCATE ENABLE_HBONE DISABLE_HBONE_SEND AUTO_REGISTER_GROUP WORKLOAD_ENTRY
	UNPRIVILEGED_POD HTTP10 IDLE_TIMEOUT TLS_SERVER_CERT_CHAIN TLS_CLIENT_KEY ENVOY_STATUS_PORT ENVOY_PROMETHEUS_PORT
	INBOUND_LISTENER_EXACT_BALANCE METADATA_DISCOVERY PROXY_CONFIG PLATFORM_METADATA STS_PORT ENABLE_SELF_DISCOVERY`

// Every known key with every kind of value: served or refused with that key's name, never a panic.
func TestParseKinds(t *testing.T) {
	kinds := map[string]*structpb.Value{
		"unset": {}, "nil": nil, "null": structpb.NewNullValue(), "true": structpb.NewBoolValue(true),
		"number": structpb.NewNumberValue(1), "fraction": structpb.NewNumberValue(-1e300),
		"empty": structpb.NewStringValue(""), "string": structpb.NewStringValue("x"),
		"digit": structpb.NewStringValue("1"), "long": structpb.NewStringValue(strings.Repeat("x", 4<<20)),
		"list": nested(1), "object": nested(2), "empty object": structpb.NewStructValue(&structpb.Struct{}),
		"nil object": {Kind: &structpb.Value_StructValue{}},
		"nil list":   {Kind: &structpb.Value_ListValue{}}, "deep": nested(10000),
		"object of nil": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"tracing": nil, "a.istio.io/b": nil}}),
		"object of objects": structpb.NewStructValue(
			&structpb.Struct{Fields: map[string]*structpb.Value{"tracing": nested(2), "istio.io/b": nested(2)}}),
	}
	served, refused := 0, 0
	for _, key := range strings.Fields(known) {
		for kind, v := range kinds {
			_, err := Parse(&corev3.Node{Id: "sidecar~1.1.1.1~x.a~d", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{key: v}}})
			if err == nil {
				served++
				continue
			}
			refused++
			if !strings.Contains(err.Error(), key) && kind != "long" {
				t.Errorf("%s as %s: %q does not name it", key, kind, err)
			}
			if len(err.Error()) > 512 {
				t.Errorf("%s as %s: an error of %d bytes", key, kind, len(err.Error()))
			}
		}
	}
	if served == 0 || refused == 0 {
		t.Errorf("served %d, refused %d", served, refused)
	}
}

// Nothing of a large node outlives the parsing, although facts are kept.
func TestParseFreesTheMessage(t *testing.T) {
	wire := func() []byte {
		n := decode(t, whole)
		n.Metadata.Fields["EXTRA"] = structpb.NewStringValue(strings.Repeat("x", 1<<20))
		b, err := proto.Marshal(n)
		must.Succeed(t, err)
		return b
	}()
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	var kept []*Proxy
	for range 32 {
		n := &corev3.Node{}
		must.Succeed(t, proto.Unmarshal(wire, n))
		p, err := Parse(n)
		must.Succeed(t, err)
		kept = append(kept, p)
	}
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("%d proxies hold %d bytes", len(kept), grown)
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(wire)
}

func FuzzParse(f *testing.F) {
	add := func(n *corev3.Node) {
		b, err := proto.Marshal(n)
		must.Succeed(f, err)
		f.Add(b)
	}
	add(decode(f, whole))
	add(&corev3.Node{Id: "router~~x~"})
	add(&corev3.Node{Id: "sidecar~1.1.1.1~x.a~d", Metadata: &structpb.Struct{
		Fields: map[string]*structpb.Value{"LABELS": nested(3), "INSTANCE_IPS": structpb.NewNumberValue(1)},
	}})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := &corev3.Node{}
		if proto.Unmarshal(b, n) != nil {
			return
		}
		p, err := Parse(n)
		if (p == nil) == (err == nil) {
			t.Fatal("neither a proxy nor an error, or both")
		}
		if err != nil {
			return
		}
		if p.Type != Sidecar && p.Type != Router {
			t.Fatalf("type %q", p.Type)
		}
		q, err := Parse(n)
		if err != nil || !cmp.Equal(p, q) {
			t.Fatalf("parsed twice, differs: %v %s", err, cmp.Diff(p, q))
		}
	})
}
