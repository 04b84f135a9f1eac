package openness

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// inbound is what a sidecar is sent whose requests pass the filters, and TLS to one cluster.
func inbound(socket *corev3.TransportSocket, upstream proto.Message, domains []string, filters ...proto.Message) trace.Config {
	h := &hcmv3.HttpConnectionManager{
		StatPrefix: "in",
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{{
			Name: "all", Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "app"}}},
			}},
		}}}},
	}
	for i, f := range filters {
		h.HttpFilters = append(h.HttpFilters, &hcmv3.HttpFilter{Name: "f" + string(rune('0'+i)),
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: envoy.Any(f)}})
	}
	l := &listenerv3.Listener{
		Name: "virtualInbound", Address: envoy.Address("0.0.0.0", 15006),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: "hcm",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: envoy.Any(h)}}}, TransportSocket: socket}},
	}
	app := &clusterv3.Cluster{Name: "app", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
		LbPolicy: clusterv3.Cluster_CLUSTER_PROVIDED}
	out := &clusterv3.Cluster{Name: "out", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
		LbPolicy: clusterv3.Cluster_CLUSTER_PROVIDED}
	if upstream != nil {
		out.TransportSocket = &corev3.TransportSocket{Name: "tls",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Any(upstream)}}
	}
	routes := &routev3.RouteConfiguration{
		Name:         "80",
		VirtualHosts: []*routev3.VirtualHost{{Name: "h", Domains: domains, Routes: h.GetRouteConfig().GetVirtualHosts()[0].GetRoutes()}},
	}
	return trace.Config{
		envoy.ListenerType: {envoy.NewResource("virtualInbound", l)},
		envoy.ClusterType:  {envoy.NewResource("app", app), envoy.NewResource("out", out)},
		envoy.RouteType:    {envoy.NewResource("80", routes)},
	}
}

func deny(paths ...string) *httprbacv3.RBAC {
	policy := &rbacv3.Policy{Principals: []*rbacv3.Principal{{Identifier: &rbacv3.Principal_Any{Any: true}}}}
	for _, p := range paths {
		policy.Permissions = append(policy.Permissions, &rbacv3.Permission{Rule: &rbacv3.Permission_UrlPath{UrlPath: &matcherv3.PathMatcher{
			Rule: &matcherv3.PathMatcher_Path{Path: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: p}}},
		}}})
	}
	return &httprbacv3.RBAC{Rules: &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{"p": policy}}}
}

func tls(names ...string) *tlsv3.UpstreamTlsContext {
	v := &tlsv3.CertificateValidationContext{TrustedCa: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "/ca"}}}
	for _, n := range names {
		v.MatchTypedSubjectAltNames = append(v.MatchTypedSubjectAltNames, &tlsv3.SubjectAltNameMatcher{
			SanType: tlsv3.SubjectAltNameMatcher_DNS, Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: n}},
		})
	}
	common := &tlsv3.CommonTlsContext{ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: v}}
	return &tlsv3.UpstreamTlsContext{CommonTlsContext: common}
}

// noAuthority returns settings of TLS that trust no server, for whichever host is called.
func noAuthority() *tlsv3.UpstreamTlsContext {
	combined := &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
		DefaultValidationContext:         &tlsv3.CertificateValidationContext{},
		ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: names.NoCredential},
	}
	common := &tlsv3.CommonTlsContext{
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: combined},
	}
	return &tlsv3.UpstreamTlsContext{CommonTlsContext: common, AutoSniSanValidation: true}
}

func mutual(required bool, ciphers ...string) *corev3.TransportSocket {
	t := &tlsv3.DownstreamTlsContext{RequireClientCertificate: wrapperspb.Bool(required),
		CommonTlsContext: &tlsv3.CommonTlsContext{TlsParams: &tlsv3.TlsParameters{CipherSuites: ciphers}}}
	return &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Any(t)}}
}

func provider(header string, audiences ...string) *jwtv3.JwtAuthentication {
	p := &jwtv3.JwtProvider{
		Issuer: "i", Audiences: audiences, ForwardPayloadHeader: header,
		JwksSourceSpecifier: &jwtv3.JwtProvider_LocalJwks{
			LocalJwks: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "{}"}},
		},
	}
	return &jwtv3.JwtAuthentication{Providers: map[string]*jwtv3.JwtProvider{"p": p}}
}

// bytesAlone returns a configuration whose only chain forwards connections to the same cluster as bytes, by a match.
func bytesAlone(t *testing.T, c trace.Config, match *listenerv3.FilterChainMatch) trace.Config {
	t.Helper()
	all, err := envoy.Decode[listenerv3.Listener](c[envoy.ListenerType])
	must.Succeed(t, err)
	all[0].FilterChains[0].FilterChainMatch = match
	all[0].FilterChains[0].Filters = []*listenerv3.Filter{{Name: "tcp",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: envoy.Any(&tcpv3.TcpProxy{
			StatPrefix: "in", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "app"},
		})}}}
	out := maps.Clone(c)
	out[envoy.ListenerType] = []*envoy.Resource{envoy.NewResource("virtualInbound", all[0])}
	return out
}

// redirecting returns a configuration whose virtual host demands TLS.
func redirecting(t *testing.T, c trace.Config) trace.Config {
	t.Helper()
	all, err := envoy.Decode[listenerv3.Listener](c[envoy.ListenerType])
	must.Succeed(t, err)
	f := all[0].FilterChains[0].Filters[0]
	h := &hcmv3.HttpConnectionManager{}
	must.Succeed(t, f.GetTypedConfig().UnmarshalTo(h))
	h.GetRouteConfig().VirtualHosts[0].RequireTls = routev3.VirtualHost_ALL
	f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: envoy.Any(h)}
	out := maps.Clone(c)
	out[envoy.ListenerType] = []*envoy.Resource{envoy.NewResource("virtualInbound", all[0])}
	return out
}

// TestCompare shows that each kind of openness is found where ours is more open, and that the closed one is not found.
func TestCompare(t *testing.T) {
	all := []string{"a.com", "b.com"}
	plain := inbound(nil, tls("x"), all)
	for _, test := range []struct {
		name         string
		closed, open trace.Config
		kind         Kind
	}{
		{"denied", inbound(nil, tls("x"), all, deny("/admin", "/")), inbound(nil, tls("x"), all, deny("/admin")), Passes},
		{"no policy", inbound(nil, tls("x"), all, deny("/admin")), inbound(nil, tls("x"), all), Passes},
		{"plaintext", plain, inbound(nil, nil, all), Plaintext},
		{"names", plain, inbound(nil, tls(), all), Unverified},
		{"more names", plain, inbound(nil, tls("x", "y"), all), Unverified},
		{"no authority", inbound(nil, noAuthority(), all), inbound(nil, tls("x"), all), Unverified},
		{"client certificate", inbound(mutual(true), tls("x"), all), inbound(mutual(false), tls("x"), all), Unverified},
		{"ciphers", inbound(mutual(true, "A"), tls("x"), all), inbound(mutual(true), tls("x"), all), Weaker},
		{"served in plaintext", inbound(mutual(true), tls("x"), all), plain, Plaintext},
		{"host", inbound(nil, tls("x"), all[:1]), plain, Visible},
		{"audience", inbound(nil, tls("x"), all, provider("x-p", "a")), inbound(nil, tls("x"), all, provider("x-p")), Token},
		{"header", inbound(nil, tls("x"), all, provider("x-p")), inbound(nil, tls("x"), all, provider("")), Token},
		{"filter", inbound(nil, tls("x"), all,
			&jwtv3.PerRouteConfig{RequirementSpecifier: &jwtv3.PerRouteConfig_RequirementName{RequirementName: "x"}}), plain, Filter},
		{"forwarded as bytes", plain, bytesAlone(t, plain, nil), Filter},
		{"tokens and another match", inbound(nil, tls("x"), all, provider("x-p")),
			bytesAlone(t, plain, &listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer"}), Token},
		{"redirect", redirecting(t, plain), plain, Passes},
		{"refused", inbound(nil, tls("x"), all, deny("/")), inbound(nil, tls("x"), all, deny()), Refused},
	} {
		t.Run(test.name, func(t *testing.T) {
			found, err := Compare(0, World{Name: test.name}, Sidecar, test.closed, test.open)
			must.Succeed(t, err)
			if !slices.ContainsFunc(found, func(d Difference) bool { return d.Kind == test.kind }) {
				t.Errorf("%v, and no %s", found, test.kind)
			}
			back, err := Compare(0, World{Name: test.name}, Sidecar, test.open, test.closed)
			must.Succeed(t, err)
			if i := slices.IndexFunc(back, func(d Difference) bool { return d.Kind == test.kind }); i >= 0 {
				t.Errorf("the closed one is more open: %s", back[i])
			}
		})
	}
	if found, err := Compare(0, World{}, Sidecar, plain, plain); err != nil || len(found) > 0 {
		t.Error(found, err)
	}
}

// worlds reads a folder of testdata.
func worlds(t *testing.T, folder string) (all []World) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		w, err := ParseWorld(folder+"/"+strings.TrimSuffix(filepath.Base(file), ".yaml"), text)
		must.Succeed(t, err)
		all = append(all, w)
	}
	return all
}

// TestGenerate shows that the same seed makes the same worlds, that all objects come from a schema, and that most are
// odd.
func TestGenerate(t *testing.T) {
	good := worlds(t, "good")
	files, err := filepath.Glob("../../../charts/base/files/crds/*.yaml")
	must.Succeed(t, err)
	schemas := Schemas{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		definitions, err := cluster.Parse(text)
		must.Succeed(t, err)
		for kind, schema := range ReadSchemas(definitions) {
			schemas[kind] = schema
		}
	}
	for _, w := range good {
		for _, o := range w.Objects {
			if schemas.of(o) == nil && !strings.HasPrefix(o.GetAPIVersion(), "gateway.networking.k8s.io/") {
				t.Errorf("%s: no schema for %s", w.Name, o.GroupVersionKind())
			}
		}
	}
	a, b, odd := NewGenerator(schemas, good, 1), NewGenerator(schemas, good, 1), 0
	for range 500 {
		x, y := a.World("w"), b.World("w")
		if string(x.YAML()) != string(y.YAML()) {
			t.Fatalf("one seed, two worlds:\n%s\n%s", x.YAML(), y.YAML())
		}
		if len(x.Odd) > 0 {
			odd++
		}
	}
	if odd < 400 {
		t.Errorf("only %d of 500 worlds are odd", odd)
	}
}

// TestPasses shows that what is forwarded to a socket that no workload has does not pass.
func TestPasses(t *testing.T) {
	for address, want := range map[string]bool{noSocket: false, "127.0.0.1": true} {
		if got := passes(&trace.Answer{Status: 200, Targets: []trace.Target{{Endpoints: []trace.Endpoint{{Address: address}}}}}); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

// TestUnreadable shows which worlds istiod cannot decode: of a wrong duration, and not of an unknown field.
func TestUnreadable(t *testing.T) {
	for policy, want := range map[string]bool{
		`{retryBudget: {budgetInterval: 5s}}`: false, `{retryBudget: {budgetInterval: "5"}}`: true, `{retryBudgets: {}}`: false,
	} {
		const rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: d}\nspec: {trafficPolicy: %s}\n"
		w, err := ParseWorld("w", fmt.Appendf(nil, rule, policy))
		must.Succeed(t, err)
		if err := w.Unreadable(); (err != nil) != want {
			t.Errorf("%s: %v", policy, err)
		}
	}
}

func TestSlot(t *testing.T) {
	w, err := ParseWorld("w",
		[]byte(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: store, namespace: store}
spec: {hosts: [a.store.svc, restore, "other/store-x", "./*.other"]}
`))
	must.Succeed(t, err)
	text := string(w.In(7).YAML())
	for _, want := range []string{"namespace: store-007", "- a.store-007.svc\n", "- restore\n", "- other-007/store-x\n", "- ./*.other-007\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(w.YAML()), "007") {
		t.Error("the world itself has changed")
	}
}

// TestAccepted shows that the table explains what it is for, and nothing beside it.
func TestAccepted(t *testing.T) {
	of := func(kinds ...string) (w World) {
		for _, k := range kinds {
			w.Objects = append(w.Objects, &unstructured.Unstructured{Object: map[string]any{"kind": k}})
		}
		return w
	}
	rule := func(host string) World {
		w := of("DestinationRule")
		w.Objects[0].Object["spec"] = map[string]any{"host": host}
		return w
	}
	entry := func(host string) World {
		w := of("ServiceEntry")
		w.Objects[0].Object["spec"] = map[string]any{"hosts": []any{host}}
		return w
	}
	authority := Difference{Sidecar, Unverified, "outbound|80||pay.store.svc.cluster.local",
		"another authority: file-root:/c ; istiod: ROOTCA "}
	credential := rule("pay")
	must.Succeed(t, unstructured.SetNestedField(credential.Objects[0].Object, "b/c", "spec", "trafficPolicy", "tls", "caCertCredentialName"))
	credential.Objects[0].SetAPIVersion("networking.istio.io/v1")
	fromSecret := Difference{Gateway, Unverified, "a", "another authority: kubernetes://b/c-cacert ; istiod: file-root:/etc/ca.pem "}
	none := func(cluster string) Difference {
		text := "to PassthroughCluster; istiod: 0, cluster " + cluster + " has no endpoint that takes requests"
		return Difference{Sidecar, Passes, "out port 80", text}
	}
	distributed := of("DestinationRule")
	must.Succeed(t, unstructured.SetNestedSlice(distributed.Objects[0].Object, []any{map[string]any{}}, "spec", "distribute"))
	patched := of("EnvoyFilter")
	if err := unstructured.SetNestedSlice(patched.Objects[0].Object, []any{
		map[string]any{"applyTo": "VIRTUAL_HOST", "patch": map[string]any{"value": map[string]any{"name": "marker-a"}}},
		map[string]any{"applyTo": "HTTP_FILTER", "patch": map[string]any{"value": map[string]any{"name": "marker-b", "typed_config": "x"}}},
		map[string]any{"applyTo": "NETWORK_FILTER", "patch": map[string]any{"value": map[string]any{"name": "marker-c", "match": "x"}}},
	}, "spec", "configPatches"); err != nil {
		t.Fatal(err)
	}
	const patch, header = "what a patch put there is missing: ", "a token is not looked for: header "
	leaves := Difference{Sidecar, Leaves, "out port 80", "to PassthroughCluster; istiod: outbound|80||a"}
	for _, test := range []struct {
		w    World
		d    Difference
		want bool
	}{
		{of("ServiceEntry"), leaves, true},
		{World{Objects: append(entry("a.b").Objects, rule("b.c").Objects...)}, leaves, true},
		{World{Objects: append(entry("a.b").Objects, rule("a.b").Objects...)}, leaves, false},
		{of("Sidecar"), leaves, false},
		{of("ServiceEntry"), none("a"), true},
		{of("ServiceEntry"), none("BlackHoleCluster"), false},
		{of(), Difference{Sidecar, Leaves, "in port 80", "to inbound|80||; istiod: InboundPassthroughCluster"}, true},
		{of("VirtualService"), Difference{Sidecar, Leaves, "out port 80 at 192.0.2.1, GET a\n.b/ from 10.1.0.1", leaves.Text}, true},
		{of("VirtualService"), Difference{Sidecar, Leaves, "out port 80 at 192.0.2.1, GET _a.b/ from 10.1.0.1", leaves.Text}, false},
		{of("ServiceEntry"), Difference{Sidecar, Passes, "out port 80 at 192.0.2.1, GET a\n.b/ from 10.1.0.1", leaves.Text}, false},
		{of(), Difference{Sidecar, Visible, "inbound|8080||", "a cluster"}, true},
		{of(), Difference{Sidecar, Visible, "outbound|80||a.b", "a cluster"}, false},
		{distributed, none("a"), true},
		{of("DestinationRule"), none("a"), false},
		{patched, Difference{Sidecar, Filter, "Listener", patch + "marker-a"}, true},
		{patched, Difference{Sidecar, Filter, "Listener", patch + "marker-b"}, false},
		{patched, Difference{Sidecar, Filter, "Listener", patch + "marker-c"}, true},
		{patched, Difference{Sidecar, Filter, "a", "marker-c is missing"}, true},
		{patched, Difference{Sidecar, Filter, "a", "marker-b is missing"}, false},
		{of(), Difference{Sidecar, Token, "a", header + "ce@rt /"}, true},
		{of(), Difference{Sidecar, Token, "a", header + "/{**}/{*} Bearer "}, true},
		{of(), Difference{Sidecar, Token, "a", header + "x-token Bearer "}, false},
		{of("VirtualService"), Difference{Gateway, Visible, "0.0.0.0_8443", "a listener"}, true},
		{of("Sidecar"), Difference{Sidecar, Visible, "0.0.0.0_8443", "a listener"}, false},
		{of("ServiceEntry"), Difference{Sidecar, Visible, "route configuration 80", "the host 10.96.1.2"}, true},
		{of("ServiceEntry"), Difference{Sidecar, Visible, "route configuration 80", "the host a.b"}, false},
		{of("Sidecar"), Difference{Sidecar, Visible, "route configuration 80", "the host 10.96.1.2"}, false},
		{of("EnvoyFilter"), Difference{Sidecar, Filter, "a", " is missing"}, true},
		{of("EnvoyFilter"), Difference{Sidecar, Filter, "a", "x is missing"}, false},
		{of(), Difference{Sidecar, Plaintext, "a", "b"}, false},
		{rule("PAY"), authority, true},
		{rule("Pay.store.svc.cluster.local"), authority, true},
		{rule("pay."), authority, true},
		{rule("pay"), authority, false},
		{entry("A.B"), Difference{Sidecar, Visible, "outbound|80||a.b", "a cluster"}, true},
		{entry("A.B"), Difference{Sidecar, Passes, "out", "to outbound|80||a.b; istiod: 503, cluster outbound|80||a.b is not there"}, true},
		{entry("a.b"), Difference{Sidecar, Visible, "outbound|80||a.b", "a cluster"}, false},
		{entry("A.B."), Difference{Sidecar, Visible, "route configuration 80", "the host a.b"}, true},
		{entry("a.b"), Difference{Sidecar, Visible, "route configuration 80", "the host a.b"}, false},
		{entry("A.C"), Difference{Sidecar, Visible, "outbound|80||a.b", "a cluster"}, false},
		{of("Gateway"), Difference{Gateway, Unverified, "a", "another authority: kubernetes://éa-cacert ; istiod: kubernetes://éa "}, true},
		{of("Gateway"), Difference{Gateway, Unverified, "a", "another authority: kubernetes://a-cacert ; istiod: kubernetes://a "}, false},
		{rule("WEB"), authority, false},
		{credential, fromSecret, true},
		{rule("pay"), fromSecret, false},
	} {
		if got := Reason(test.w, test.d) != ""; got != test.want {
			t.Errorf("%s is accepted: %v", test.d, got)
		}
	}
}
