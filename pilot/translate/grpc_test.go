package translate_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

var adsOfGRPC = flag.String("ads", "", "the address of an istiod, to record what it sends applications with gRPC; empty: it is not asked")

var updateGRPC = flag.Bool("update-grpc", false, "write the differences in testdata/grpc anew")

// What the applications of the recordings ask for, and the lines of an archive's own list.
const (
	grpcHost     = "greeter.a.svc.cluster.local"
	grpcHeadless = "headless.a.svc.cluster.local"
	grpcInbound  = "xds.istio.io/grpc/lds/inbound/"
)

func grpcNames(address, more string) map[string][]string {
	clusters := []string{"outbound|7070||" + grpcHeadless, "outbound|80||" + grpcHost, "outbound|443||ext.example.com",
		"outbound|443||dns.example.com",
		"outbound|443||pass.example.com", "outbound|9||" + grpcHost, "nope"}
	for _, subset := range []string{"", "v1", "v2", "v3", "v4", "v5"} {
		clusters = append(clusters, "outbound|7070|"+subset+"|"+grpcHost)
	}
	all := map[string][]string{
		envoy.ListenerType: {
			grpcHost + ":7070", grpcHost, "greeter.a:7070", "greeter:7070", "greeter.a.svc:7070", "10.64.0.11:7070", grpcHost + ":80",
			grpcHost + ":9000",
			grpcHost + ":1", "nope.a.svc.cluster.local:1", grpcHeadless + ":7070", "ext.example.com:443", "dns.example.com:443",
			"pass.example.com:443",
			"only.example.com:80", "only.example.com:7070", grpcInbound + address + ":17070", grpcInbound + "0.0.0.0:17070",
			grpcInbound + "[::]:17070",
			grpcInbound + address + ":8080", grpcInbound + address + ":5",
		},
		envoy.ClusterType: clusters, envoy.EndpointType: slices.Clone(clusters[:8]),
		envoy.RouteType: {
			"outbound|7070||" + grpcHost, "outbound|7070||" + grpcHeadless, "outbound|80||" + grpcHost, "outbound|9000||" + grpcHost,
			"outbound|443||ext.example.com", "outbound|7070||nope.x", "nope", "7070",
		},
	}
	types := map[string]string{"lds": envoy.ListenerType, "cds": envoy.ClusterType, "eds": envoy.EndpointType, "rds": envoy.RouteType}
	for line := range strings.Lines(more) {
		typ, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[types[typ]] = append(all[types[typ]], name)
	}
	return all
}

// TestGRPC compares what applications are sent that use xDS without a proxy with what the real istiod sent them for the
// same objects, as far as gRPC reads it. Each archive has istiod's answers and how ours differ. With -ads and
// -update-grpc the answers are asked for anew, of an istiod that has the world and the input of the one archive.
func TestGRPC(t *testing.T) {
	world := read(t, "testdata", "grpc", "world.yaml")
	paths, err := filepath.Glob(filepath.Join("testdata", "grpc", "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a := txtar.Parse(read(t, path))
			w, tr := newWorld(t, mesh.Default()), newTranslator(1<<20)
			changes := objects(t, "world.yaml", world)
			var interner envoy.NameInterner
			recorded := map[string][]byte{}
			for _, f := range a.Files {
				if recorded[f.Name] = f.Data; f.Name == "input.yaml" {
					changes = append(changes, objects(t, f.Name, f.Data)...)
				}
			}
			s := w.apply(changes...)
			tr.Prepare(s)
			got := &txtar.Archive{Comment: a.Comment, Files: slices.DeleteFunc(slices.Clone(a.Files), func(f txtar.File) bool {
				return strings.HasPrefix(f.Name, "differs.")
			})}
			for name, address := range map[string]string{"client": "10.1.0.9", "greeter": "10.1.0.1"} {
				pod := map[string]string{"client": "client-0", "greeter": "greeter-v1-0"}[name]
				c := tr.ResolveCohort(s, grpcProxy(t, address, pod, name))
				asked := grpcNames(address, string(recorded["names"]))
				if name == "greeter" {
					maps.DeleteFunc(asked, func(typeURL string, _ []string) bool { return typeURL != envoy.ListenerType })
				}
				if *adsOfGRPC != "" {
					var theirs []string
					for _, m := range ask(t, *adsOfGRPC, grpcNode(address, pod, name), asked) {
						theirs = append(theirs, grpcLines(t, m)...)
					}
					theirs = slices.DeleteFunc(theirs, func(l string) bool { return name == "greeter" && !strings.Contains(l, grpcInbound) })
					slices.Sort(theirs)
					text := []byte(strings.Join(slices.Compact(theirs), "\n") + "\n")
					recorded["istiod."+name] = text
					got.Files = append(slices.DeleteFunc(got.Files, func(f txtar.File) bool {
						return f.Name == "istiod."+name
					}), txtar.File{Name: "istiod." + name, Data: text})
				}
				lines := map[string]bool{}
				for typeURL, list := range asked {
					u, err := tr.Get(s, c, typeURL, interner.Intern(list))
					must.Succeed(t, err)
					for r := range u.All {
						for _, l := range grpcLines(t, decode(t, r)) {
							if name == "client" || strings.Contains(l, grpcInbound) {
								lines[l] = true
							}
						}
					}
				}
				if diff := lineDiff(strings.Split(string(recorded["istiod."+name]), "\n"), slices.Sorted(maps.Keys(lines))); diff != "" {
					got.Files = append(got.Files, txtar.File{Name: "differs." + name, Data: []byte(diff)})
				}
			}
			slices.SortStableFunc(got.Files, func(a, b txtar.File) int { return cmp.Compare(a.Name, b.Name) })
			if text := txtar.Format(got); !bytes.Equal(text, read(t, path)) {
				if !*updateGRPC {
					t.Fatalf("it is now:\n%s", text)
				}
				must.Succeed(t, os.WriteFile(path, text, 0o600))
			}
		})
	}
}

// grpcProxy is a client of the world in testdata/grpc that uses xDS without a proxy.
func grpcProxy(t *testing.T, address, pod, app string) *node.Proxy {
	t.Helper()
	return proxy(t, []byte(grpcNode(address, pod, app)))
}

// grpcNode is who it says it is.
func grpcNode(address, pod, app string) string {
	return `{"id": "sidecar~` + address + `~` + pod + `.a~a.svc.cluster.local", "locality": {"region": "r1", "zone": "z1"},
		"metadata": {"GENERATOR": "grpc", "CLUSTER_ID": "Kubernetes", "NAMESPACE": "a",
		  "INSTANCE_IPS": "` + address + `", "LABELS": {"app": "` + app + `"}}}`
}

// grpcLinesOf returns what gRPC reads of one resource after changes.
func grpcLinesOf(t *testing.T, address, pod, app, typeURL, name, input string) string {
	t.Helper()
	m, found := mesh.Parse("mesh.yaml",
		[]byte(`extensionProviders: [{name: authorizer, envoyExtAuthzGrpc: {service: `+grpcHost+`, port: 7070}}]`))
	if m == nil {
		t.Fatal(found)
	}
	w, tr := newWorld(t, m), newTranslator(1<<20)
	s := w.apply(append(objects(t, "world.yaml", read(t, "testdata", "grpc", "world.yaml")), objects(t, "input.yaml", []byte(input))...)...)
	tr.Prepare(s)
	var interner envoy.NameInterner
	u, err := tr.Get(s, tr.ResolveCohort(s, grpcProxy(t, address, pod, app)), typeURL, interner.Intern([]string{name}))
	must.Succeed(t, err)
	var lines []string
	for r := range u.All {
		m := decode(t, r)
		if l, ok := m.(*listenerv3.Listener); ok {
			lines = append(lines, grpcRules(t, l)...)
		} else {
			lines = append(lines, grpcLines(t, m)...)
		}
	}
	return strings.Join(lines, "\n")
}

// grpcRules returns the policies of a server's listener: the action, and for each rule its permissions and principals.
func grpcRules(t tb, l *listenerv3.Listener) (list []string) {
	t.Helper()
	var manager hcmv3.HttpConnectionManager
	must.Succeed(t, l.FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(&manager))
	for _, f := range manager.HttpFilters {
		var r httprbacv3.RBAC
		if !f.GetTypedConfig().MessageIs(&r) {
			continue
		}
		must.Succeed(t, f.GetTypedConfig().UnmarshalTo(&r))
		text := r.Rules.Action.String()
		for _, name := range slices.Sorted(maps.Keys(r.Rules.Policies)) {
			p := r.Rules.Policies[name]
			text += " if"
			for _, m := range p.Permissions {
				text += " " + grpcPermission(m)
			}
			text += " from"
			for _, m := range p.Principals {
				text += " " + grpcPrincipal(m)
			}
		}
		list = append(list, text)
	}
	return list
}

func grpcPermission(p *rbacv3.Permission) string {
	switch r := p.Rule.(type) {
	case *rbacv3.Permission_AndRules:
		return "and" + grpcEach(r.AndRules.Rules, grpcPermission)
	case *rbacv3.Permission_OrRules:
		return "or" + grpcEach(r.OrRules.Rules, grpcPermission)
	case *rbacv3.Permission_NotRule:
		return "not " + grpcPermission(r.NotRule)
	case *rbacv3.Permission_Any:
		return "any"
	case *rbacv3.Permission_Header:
		return r.Header.Name
	}
	return fmt.Sprintf("%T", p.Rule)
}

func grpcPrincipal(p *rbacv3.Principal) string {
	switch r := p.Identifier.(type) {
	case *rbacv3.Principal_AndIds:
		return "and" + grpcEach(r.AndIds.Ids, grpcPrincipal)
	case *rbacv3.Principal_OrIds:
		return "or" + grpcEach(r.OrIds.Ids, grpcPrincipal)
	case *rbacv3.Principal_NotId:
		return "not " + grpcPrincipal(r.NotId)
	case *rbacv3.Principal_Any:
		return "any"
	case *rbacv3.Principal_Header:
		return r.Header.Name
	case *rbacv3.Principal_Authenticated_:
		return "id"
	case *rbacv3.Principal_DirectRemoteIp:
		return "peer"
	}
	return fmt.Sprintf("%T", p.Identifier)
}

func grpcEach[M any](list []M, text func(M) string) string {
	var all []string
	for _, m := range list {
		all = append(all, text(m))
	}
	return "(" + strings.Join(all, " ") + ")"
}

// TestGRPCPolicies: what some version of gRPC does not evaluate as an Envoy does opens nothing. Such a rule is left out
// where it allows, and refuses all where it denies. A claim of a token is one that nobody has.
func TestGRPCPolicies(t *testing.T) {
	for _, c := range []struct{ action, rule, want string }{
		{"DENY", `from: [{source: {ipBlocks: [10.0.0.0/8]}}]`, "DENY if and(any) from and(or(peer))"},
		{"DENY", `from: [{source: {remoteIpBlocks: [10.0.0.0/8]}}]`, "DENY if any from any"},
		{"ALLOW", `from: [{source: {notRemoteIpBlocks: [10.0.0.0/8]}}]`, "ALLOW"},
		{"DENY", `when: [{key: "request.headers[X-User]", values: [x]}]`, "DENY if and(any) from and(or(x-user))"},
		{"DENY", `when: [{key: "request.headers[Host]", notValues: [x]}]`, "DENY if and(any) from and(not or(:authority))"},
		{"DENY", `when: [{key: "request.headers[GRPC-Timeout]", values: [x]}]`, "DENY if any from any"},
		{"DENY", `when: [{key: connection.sni, values: [x]}]`, "DENY if any from any"},
		{"ALLOW", `from: [{source: {requestPrincipals: ["iss/sub"], namespaces: [a]}}]`,
			"ALLOW if and(any) from and(and(not any not any) or(id))"},
		{"DENY", `from: [{source: {notRequestPrincipals: ["*"]}}]`, "DENY if and(any) from and(not and(not any not any))"},
		{"ALLOW", `when: [{key: "request.auth.claims[role]", values: [x]}]`, "ALLOW if and(any) from and(not any)"},
		{"CUSTOM\n  provider: {name: authorizer}", `when: [{key: "request.headers[X-User]", values: [x]}]`,
			"DENY if and(any) from and(or(x-user))"},
		{"CUSTOM\n  provider: {name: authorizer}",
			`when: [{key: "request.headers[X-User]", values: [x]}, {key: remote.ip, values: [10.0.0.0/8]}]`, "DENY if any from any"},
	} {
		input := "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: x, namespace: a}\nspec:\n  action: " +
			c.action + "\n  rules: [{" + c.rule + "}]\n"
		if got := grpcLinesOf(t, "10.1.0.1", "greeter-v1-0", "greeter", envoy.ListenerType, grpcInbound+"10.1.0.1:17070", input); got != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.action, c.rule, got, c.want)
		}
	}
}

// TestGRPCClaims: a route for calls with a claim takes no call, and one for calls without it takes every call.
func TestGRPCClaims(t *testing.T) {
	const input = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: x, namespace: a}
spec:
  hosts: [greeter.a.svc.cluster.local]
  http:
  - match: [{headers: {"@request.auth.claims.role": {exact: admin}}, uri: {prefix: /with}}]
    route: [{destination: {host: headless, port: {number: 7070}}}]
  - match: [{withoutHeaders: {"@request.auth.claims.role": {exact: admin}}, uri: {prefix: /without}}]
    route: [{destination: {host: greeter}}]
`
	const name = "outbound|7070||" + grpcHost
	want := "rds " + name + " route 0 /without*: " + name + " 2 retries on unavailable cancelled"
	if got := grpcLinesOf(t, "10.1.0.9", "client-0", "client", envoy.RouteType, name, input); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// lineDiff returns the lines that one sorted list has and the other has not.
func lineDiff(was, is []string) string {
	var all []string
	for _, l := range was {
		if l != "" && !slices.Contains(is, l) {
			all = append(all, l+"\n\x00- ")
		}
	}
	for _, l := range is {
		if !slices.Contains(was, l) {
			all = append(all, l+"\n\x01+ ")
		}
	}
	slices.Sort(all)
	var b strings.Builder
	for _, l := range all {
		text, sign, _ := strings.Cut(l, "\n")
		b.WriteString(sign[1:] + text + "\n")
	}
	return b.String()
}

// grpcLines returns what gRPC reads of a resource.
func grpcLines(t tb, m proto.Message) []string {
	t.Helper()
	switch m := m.(type) {
	case *listenerv3.Listener:
		return []string{"lds " + m.Name + grpcListener(t, m)}
	case *clusterv3.Cluster:
		return []string{"cds " + m.Name + grpcCluster(t, m)}
	case *endpointv3.ClusterLoadAssignment:
		var localities []string
		for _, l := range m.Endpoints {
			text := fmt.Sprintf(" [%s/%s priority %d weight %d:", l.Locality.GetRegion(), l.Locality.GetZone(), l.Priority,
				l.LoadBalancingWeight.GetValue())
			for _, e := range l.LbEndpoints {
				a := e.GetEndpoint().GetAddress().GetSocketAddress()
				text += fmt.Sprintf(" %s:%d", a.GetAddress(), a.GetPortValue())
				if h := e.HealthStatus; h != corev3.HealthStatus_UNKNOWN && h != corev3.HealthStatus_HEALTHY {
					text += " " + h.String()
				}
			}
			localities = append(localities, text+"]")
		}
		if len(localities) == 0 {
			return nil
		}
		slices.Sort(localities) // their order means nothing
		text := strings.Join(localities, "")
		return []string{"eds " + m.ClusterName + text}
	case *routev3.RouteConfiguration:
		var list []string
		for _, h := range m.VirtualHosts {
			for i, r := range h.Routes {
				list = append(list, fmt.Sprintf("rds %s route %d %s", m.Name, i, grpcRoute(t, r)))
			}
		}
		return list
	}
	t.Fatalf("%T", m)
	return nil
}

func grpcListener(t tb, l *listenerv3.Listener) string {
	t.Helper()
	var manager hcmv3.HttpConnectionManager
	if api := l.GetApiListener().GetApiListener(); api != nil {
		must.Succeed(t, api.UnmarshalTo(&manager))
		return " routes " + manager.GetRds().GetRouteConfigName() + grpcFilters(t, &manager)
	}
	a := l.Address.GetSocketAddress()
	text := fmt.Sprintf(" at %s port %d", a.Address, a.GetPortValue())
	for _, c := range l.FilterChains {
		text += " plaintext"
		if c.TransportSocket != nil {
			var tls tlsv3.DownstreamTlsContext
			must.Succeed(t, c.TransportSocket.GetTypedConfig().UnmarshalTo(&tls))
			text = strings.TrimSuffix(text, "plaintext") +
				fmt.Sprintf("tls %s client %v", grpcTLS(tls.CommonTlsContext), tls.RequireClientCertificate.GetValue())
		}
		must.Succeed(t, c.Filters[0].GetTypedConfig().UnmarshalTo(&manager))
		text += grpcFilters(t, &manager)
	}
	return text
}

func grpcTLS(c *tlsv3.CommonTlsContext) string {
	v := c.GetCombinedValidationContext().GetDefaultValidationContext()
	text := c.TlsCertificateProviderInstance.GetInstanceName() + "/" + v.GetCaCertificateProviderInstance().GetInstanceName()
	for _, m := range v.GetMatchSubjectAltNames() { //nolint:staticcheck // what gRPC reads
		text += " " + m.GetExact()
	}
	return text
}

// grpcFilters returns the filters, with what policies are in them.
func grpcFilters(t tb, m *hcmv3.HttpConnectionManager) string {
	t.Helper()
	text := ""
	for _, f := range m.HttpFilters {
		text += " " + f.GetTypedConfig().GetTypeUrl()[strings.LastIndexByte(f.GetTypedConfig().GetTypeUrl(), '.')+1:]
		var r httprbacv3.RBAC
		if f.GetTypedConfig().MessageIs(&r) {
			must.Succeed(t, f.GetTypedConfig().UnmarshalTo(&r))
			text += " " + rbacv3.RBAC_Action_name[int32(r.Rules.GetAction())]
			text += fmt.Sprintf(" %d rules", len(r.Rules.GetPolicies()))
		}
	}
	return text
}

func grpcCluster(t tb, c *clusterv3.Cluster) string {
	t.Helper()
	text := fmt.Sprintf(" %v %v", c.GetType(), c.LbPolicy)
	if c.GetEdsClusterConfig() != nil && c.GetEdsClusterConfig().GetServiceName() != c.Name {
		text += " endpoints of " + c.GetEdsClusterConfig().GetServiceName()
	}
	if s := c.GetRingHashLbConfig().GetMinimumRingSize(); s != nil {
		text += fmt.Sprintf(" ring %d", s.Value)
	}
	for _, l := range c.GetLoadAssignment().GetEndpoints() {
		for _, e := range l.LbEndpoints {
			text += " " + e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()
		}
	}
	for _, th := range c.GetCircuitBreakers().GetThresholds() {
		text += fmt.Sprintf(" requests %d", th.MaxRequests.GetValue())
	}
	if o := c.OutlierDetection; o != nil {
		text += fmt.Sprintf(" ejects after %d calls", o.FailurePercentageRequestVolume.GetValue())
	}
	if c.TransportSocket != nil {
		var tls tlsv3.UpstreamTlsContext
		must.Succeed(t, c.TransportSocket.GetTypedConfig().UnmarshalTo(&tls))
		text += " tls " + grpcTLS(tls.CommonTlsContext)
	}
	return text
}

func grpcRoute(t tb, r *routev3.Route) string {
	t.Helper()
	m := r.Match
	text := cmp.Or(m.GetPath(), m.GetPrefix()+"*")
	if m.GetSafeRegex() != nil {
		text = "~" + m.GetSafeRegex().Regex
	}
	for _, h := range m.Headers {
		text += fmt.Sprintf(" %s", h.Name)
		if h.InvertMatch {
			text += " not"
		}
	}
	if len(m.QueryParameters) > 0 {
		text += " query"
	}
	text += ":"
	a := r.GetRoute()
	if a == nil {
		return text + " fails"
	}
	if a.GetCluster() != "" {
		text += " " + a.GetCluster()
	}
	for _, c := range a.GetWeightedClusters().GetClusters() {
		text += fmt.Sprintf(" %d %s", c.Weight.GetValue(), c.Name)
	}
	if d := a.GetMaxStreamDuration().GetMaxStreamDuration().AsDuration(); d > 0 {
		text += fmt.Sprintf(" timeout %v", d)
	}
	if p := a.RetryPolicy; p != nil {
		text += fmt.Sprintf(" %d retries on", p.NumRetries.GetValue())
		for on := range strings.SplitSeq(p.RetryOn, ",") {
			if slices.Contains([]string{"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"}, on) {
				text += " " + on
			}
		}
	}
	if len(a.HashPolicy) > 0 {
		text += " hash"
	}
	for _, name := range slices.Sorted(maps.Keys(r.TypedPerFilterConfig)) {
		text += " " + name
	}
	return text
}
