package traffic

import (
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// authzPolicy returns an AuthorizationPolicy for the server, named MARK.
func authzPolicy(spec string) string {
	return policyOf("MARK", "", "selector: {matchLabels: {app: echo}}, "+spec)
}

func policyOf(name, annotations, spec string) string {
	return "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: " + name + ", namespace: a, annotations: {" +
		annotations + "}}\nspec: {" + spec + "}\n---\n"
}

// from, to and when return policies that allow one source, one operation and one condition.
func from(source string) string { return authzPolicy("rules: [{from: [{source: {" + source + "}}]}]") }
func to(operation string) string {
	return authzPolicy("rules: [{to: [{operation: {" + operation + "}}]}]")
}
func when(key, values string) string {
	return authzPolicy("rules: [{when: [{key: '" + key + "', " + values + "}]}]")
}

// custom returns a policy of action CUSTOM.
func custom(provider, operation string) string {
	return authzPolicy("action: CUSTOM, provider: {name: " + provider + "}, rules: [{to: [{operation: {" + operation + "}}]}]")
}

const dryRun = `istio.io/dry-run: "true"`

// Calls of all kinds, in their usual form.
var (
	authzClient, other, authzPlain = call{}, call{from: "other"}, call{from: "plain"}
	clientTCP, otherTCP, plainTCP  = call{port: 90}, call{from: "other", port: 90}, call{from: "plain", port: 90}
)

func path(p string) call               { return call{from: "plain", path: p} }
func host(h string) call               { return call{from: "plain", host: h} }
func header(name, v string) call       { return call{headers: map[string]string{name: v}} }
func asked(p, v string) call           { return call{path: p, headers: map[string]string{pass: v}} }
func withStatus(want int, c call) call { c.want = want; return c }
func authzGateway(c call) call {
	c.from, c.to = "plain", net.JoinHostPort(authzGatewayPod, "8080")
	return c
}
func method(m string) call { return call{method: m} }

var everybody = []call{authzClient, other, authzPlain, clientTCP, otherTCP, plainTCP}

// TestPolicies puts one policy after the other in force, and makes calls that it allows and calls that it denies.
// Proxies of the newest and of the oldest version decide the same. Policies that name cluster.local mean the same in a
// mesh with another trust domain.
//
// With -short, the oldest version is left out, and the other trust domain has only a few policies.
func TestPolicies(t *testing.T) {
	all := func(string) bool { return true }
	t.Run("newest", func(t *testing.T) { testPolicies(t, suite.EnvoyVar, defaultTrust, all) })
	if testing.Short() {
		all = regexp.MustCompile("TRUST|ALIAS|cluster.local").MatchString
	} else {
		t.Run("oldest", func(t *testing.T) { testPolicies(t, suite.OldestEnvoyVar, defaultTrust, all) })
	}
	t.Run("other trust domain", func(t *testing.T) { testPolicies(t, suite.EnvoyVar, otherTrust, all) })
}

// testPolicies tests the policies for which tries returns true.
func testPolicies(t *testing.T, envoy string, trust trust, tries func(policies string) bool) {
	m := startAuthz(t, envoy, trust)
	for i, c := range []struct {
		name, policies string
		in, out        []call
	}{
		{"nothing", authzPolicy(""), nil, everybody},
		{"everything", authzPolicy("rules: [{}]"), everybody, nil},

		{"a principal", from("principals: [cluster.local/ns/a/sa/client]"), []call{authzClient, clientTCP},
			[]call{other, authzPlain, otherTCP, plainTCP}},
		{"principals by prefix", from(`principals: ["TRUST/ns/b/*"]`), []call{other, otherTCP}, []call{authzClient, authzPlain, clientTCP}},
		{"principals by suffix", from(`principals: ["*/sa/other"]`), []call{other, otherTCP}, []call{authzClient, authzPlain, clientTCP}},
		{"any principal", from(`principals: ["*"]`), []call{authzClient, other, clientTCP, otherTCP}, []call{authzPlain, plainTCP}},
		{"other principals", from("notPrincipals: [cluster.local/ns/a/sa/client]"), []call{other, authzPlain, otherTCP},
			[]call{authzClient, clientTCP}},
		{"deny a principal", authzPolicy("action: DENY, rules: [{from: [{source: {principals: [cluster.local/ns/a/sa/client]}}]}]"),
			[]call{other, authzPlain, otherTCP}, []call{authzClient, clientTCP}},
		{"deny source.principal", authzPolicy("action: DENY, rules: [{when: [{key: source.principal, values: [cluster.local/ns/a/sa/client]}]}]"),
			[]call{other, authzPlain, otherTCP}, []call{authzClient, clientTCP}},
		{"a namespace", from("namespaces: [b]"), []call{other, otherTCP}, []call{authzClient, authzPlain, clientTCP, plainTCP}},
		{"other namespaces", from("notNamespaces: [b]"), []call{authzClient, authzPlain}, []call{other, otherTCP}},
		{"a service account", from("serviceAccounts: [client, b/x]"), []call{authzClient, clientTCP}, []call{other, authzPlain, otherTCP}},
		{"a service account elsewhere", from("serviceAccounts: [b/other]"), []call{other}, []call{authzClient, authzPlain}},
		{"other service accounts", from("notServiceAccounts: [b/other]"), []call{authzClient, authzPlain}, []call{other, otherTCP}},
		{"a trust domain", from(`trustDomains: ["TRUST*"]`), []call{authzClient, other, clientTCP}, []call{authzPlain, plainTCP}},
		{"other trust domains", from("notTrustDomains: [TRUST]"), []call{authzPlain, plainTCP}, []call{authzClient, clientTCP}},
		{"an alias", from("trustDomains: [ALIAS]"), []call{authzClient, other, clientTCP}, []call{authzPlain, plainTCP}},
		{"deny an alias", authzPolicy("action: DENY, rules: [{from: [{source: {trustDomains: [ALIAS]}}]}]"), []call{authzPlain, plainTCP},
			[]call{authzClient, other, clientTCP}},
		{"an issuer without a subject", from("requestPrincipals: [https://issuer.example]"), nil, []call{authzClient, authzPlain}},
		{"deny an issuer without a subject",
			authzPolicy(
				"action: DENY, rules: [{to: [{operation: {ports: [\"8081\"]}}]}, {from: [{source: {requestPrincipals: [https://issuer.example]}}], " +
					"to: [{operation: {methods: [GET]}}]}]"),
			[]call{authzClient, authzPlain}, []call{{port: 81}}},
		{"addresses", from("ipBlocks: [10.10.0.12, 10.10.0.14/31]"), []call{authzClient, authzPlain, clientTCP, plainTCP},
			[]call{other, otherTCP}},
		{"other addresses", from("notIpBlocks: [10.10.0.12]"), []call{other, authzPlain, otherTCP}, []call{authzClient, clientTCP}},
		{"remote addresses", from("remoteIpBlocks: [10.10.0.14]"), []call{authzPlain, plainTCP}, []call{authzClient, clientTCP}},
		{"no token", from(`requestPrincipals: ["*"]`), nil, everybody},
		{"deny plaintext", authzPolicy(`action: DENY, rules: [{from: [{source: {notPrincipals: ["*"]}}]}]`),
			[]call{authzClient, other, clientTCP}, []call{authzPlain, plainTCP}},

		{"hosts", to(`hosts: [Echo.Example.com, "*.example.org", "a.*"]`),
			[]call{host("echo.example.COM"), host("x.Example.org"), host("A.b.c")},
			[]call{host("echo.example.com.x"), host("example.org"), host("echo.a"), plainTCP}},
		{"other hosts", to(`notHosts: ["*.example.org"]`), []call{host("echo.a")}, []call{host("x.EXAMPLE.org"), plainTCP}},
		{"methods", to(`methods: [GET, "P*"]`), []call{method("GET"), method("PUT"), method("POST")},
			[]call{method("DELETE"), method("OPTIONS"), clientTCP}},
		{"paths", to(`paths: [/exact, "/pre*", "*.css"]`),
			[]call{path("/exact"), path("/exact?a=b"), path("/prefix"), path("/a/b.css"), path("/b.css?x"), path("/x/../exact"), path("/%65xact")},
			[]call{path("/"), path("/exact/"), path("/Exact"), path("/a?b.css"), path("/pr"), path("/prefix/../x"), plainTCP}},
		{"denied paths", authzPolicy(`action: DENY, rules: [{to: [{operation: {paths: ["/admin*"]}}]}]`),
			[]call{path("/"), path("/adm"), path("/x/admin")},
			[]call{path("/admin"), path("/admin/x"), path("/admin?x"), path("/x/../admin"), path("/./admin"), path("/%61dmin"), plainTCP,
				clientTCP}},
		{"templates", to(`paths: ["/a/{*}/b", "/c/{**}"]`), []call{path("/a/x/b"), path("/c/d/e"), path("/c/d?e")},
			[]call{path("/a/x/y/b"), path("/a//b"), path("/d/c/"), path("/a/x/b/c")}},
		{"other paths", to(`notPaths: [/no, "/not/{*}"]`), []call{path("/"), path("/not/a/b")},
			[]call{path("/no"), path("/no?x"), path("/not/a")}},
		{"ports", to(`ports: ["8081", "9090"]`), []call{{port: 81}, {from: "plain", port: 81}, clientTCP, plainTCP},
			[]call{authzClient, authzPlain}},
		{"other ports", to(`notPorts: ["9090"]`), []call{authzClient, {port: 81}}, []call{clientTCP, plainTCP}},

		{"a header", when("request.headers[X-Tenant]", `values: [one, "t*", "*.x"]`),
			[]call{header("x-tenant", "one"), header("X-Tenant", "two"), header("x-tenant", "a.x")},
			[]call{authzClient, header("x-tenant", "One"), header("x-other", "one"), clientTCP}},
		{"any header", when("request.headers[x-tenant]", `values: ["*"]`), []call{header("x-tenant", "x")}, []call{authzClient}},
		{"no header", when("request.headers[x-tenant]", `notValues: ["*"]`), []call{authzClient}, []call{header("x-tenant", "x")}},
		{"source.ip", when("source.ip", "values: [10.10.0.12]"), []call{authzClient, clientTCP}, []call{other, plainTCP}},
		{"remote.ip", when("remote.ip", "notValues: [10.10.0.12]"), []call{other, plainTCP}, []call{authzClient, clientTCP}},
		{"source.namespace", when("source.namespace", "values: [a]"), []call{authzClient, clientTCP}, []call{other, authzPlain}},
		{"source.principal", when("source.principal", "values: [cluster.local/ns/b/sa/other]"), []call{other, otherTCP},
			[]call{authzClient, authzPlain}},
		{"source.serviceAccount", when("source.serviceAccount", "values: [b/other]"), []call{other, otherTCP}, []call{authzClient, authzPlain}},
		{"source.trustDomain", when("source.trustDomain", "values: [TRUST]"), []call{authzClient}, []call{authzPlain}},
		{"destination.ip", when("destination.ip", "values: [10.10.0.11]"), everybody, nil},
		{"another destination.ip", when("destination.ip", "values: [10.10.0.99, 10.96.0.0/16]"), nil, everybody},
		{"destination.port", when("destination.port", `values: ["9090"]`), []call{clientTCP}, []call{authzClient, {port: 81}}},
		{"connection.sni", when("connection.sni", `values: ["*.echo.a.svc.cluster.local"]`), []call{authzClient, clientTCP},
			[]call{authzPlain, plainTCP}},
		{"request.auth", when("request.auth.claims[group]", "values: [admins]"), nil, everybody},

		{"two rules",
			authzPolicy(
				`rules: [{to: [{operation: {methods: [PUT]}}], from: [{source: {namespaces: [b]}}]}, {to: [{operation: {ports: ["9090"]}}]}]`),
			[]call{{from: "other", method: "PUT"}, clientTCP, plainTCP}, []call{other, method("PUT"), {from: "plain", method: "PUT"}}},
		{"what is denied is denied",
			authzPolicy("rules: [{}]") + policyOf("deny", "", `action: DENY, rules: [{from: [{source: {namespaces: [b]}}]}]`),
			[]call{authzClient, authzPlain, clientTCP}, []call{other, otherTCP}},
		{"by the service", policyOf("MARK", "", `targetRefs: [{kind: Service, name: echo}], rules: [{to: [{operation: {ports: ["8080"]}}]}]`),
			[]call{authzClient}, []call{{port: 81}, clientTCP}},

		{"audit", authzPolicy("action: AUDIT, rules: [{}]"), everybody, nil},
		{"a dry run", policyOf("MARK", dryRun, "action: DENY, rules: [{}]"), everybody, nil},
		{"a dry run that allows nothing", policyOf("MARK", dryRun, ""), everybody, nil},
		{"what a filter says", policyOf("dry", dryRun, "action: DENY, rules: [{to: [{operation: {paths: [/dry]}}]}]") +
			when("experimental.envoy.filters.http.rbac[istio_dry_run_deny_shadow_engine_result]", `values: [allowed]`), []call{path("/")},
			[]call{path("/dry")}},

		{"asked over gRPC", custom("by-grpc", `paths: ["/ask*"]`), []call{authzClient, authzPlain, asked("/ask", passed), asked("/", "no")},
			[]call{withStatus(http.StatusUnauthorized, asked("/ask", "no")), withStatus(http.StatusUnauthorized, path("/ask/x"))}},
		{"asked over HTTP", custom("by-http", `paths: ["/ask*"]`), []call{authzClient, authzPlain, asked("/ask", passed), asked("/", "no")},
			[]call{withStatus(http.StatusUnauthorized, asked("/ask", "no")), withStatus(http.StatusUnauthorized, path("/ask/x")), plainTCP}},
		{"asked about connections", custom("by-grpc", `ports: ["9090"]`), []call{authzClient, authzPlain, clientTCP}, []call{otherTCP, plainTCP}},
		{"asked, and denied",
			custom("by-grpc", `paths: ["/ask*"]`) + policyOf("deny", "", "action: DENY, rules: [{to: [{operation: {methods: [PUT]}}]}]"),
			[]call{asked("/ask", passed)}, []call{{path: "/ask", method: "PUT", headers: map[string]string{pass: passed}},
				withStatus(http.StatusUnauthorized, asked("/ask", "no"))}},
		{"nobody to ask", custom("away", `paths: ["/ask*"]`), []call{authzClient},
			[]call{withStatus(http.StatusServiceUnavailable, path("/ask"))}},
		{"nobody to ask, which lets in", custom("away-open", `paths: ["/ask*"]`), []call{authzClient, path("/ask")}, nil},
		{"no such service", custom("missing-open", `paths: ["/ask*"]`), []call{authzClient},
			[]call{path("/ask"), asked("/ask", passed), clientTCP}},
		{"no such provider", custom("unheard-of", `paths: ["/ask*"]`), []call{authzClient},
			[]call{path("/ask"), asked("/ask", passed), clientTCP}},
		{"two authorizers", custom("by-grpc", `paths: ["/ask*"]`) +
			policyOf("two", "", "action: CUSTOM, provider: {name: by-http}, rules: [{to: [{operation: {paths: [/two]}}]}]"),
			[]call{authzClient}, []call{asked("/ask", passed), asked("/two", passed), clientTCP}},
	} {
		if !tries(c.policies) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			marker := fmt.Sprintf("case-%d", i)
			m.apply(t, "echo", marker, strings.ReplaceAll(c.policies, "MARK", marker))
			explain := m.explain(t)
			for _, one := range c.in {
				m.want(t, one, http.StatusOK)
				explain(one, http.StatusOK)
			}
			for _, one := range c.out {
				m.want(t, one, http.StatusForbidden)
				explain(one, http.StatusForbidden)
			}
		})
	}
	for _, protocol := range []string{"grpc", "http", "tcp"} {
		if tries("by-"+protocol) && m.authorizer.times(protocol) == 0 {
			t.Errorf("no authorizer was asked over %s", protocol)
		}
	}
	m.healthy()
}

// TestNormalization sends different spellings of the same path, under each normalization of the mesh configuration. A
// policy that denies a path denies every spelling that is normalized to it.
func TestNormalization(t *testing.T) {
	m := startAuthz(t, suite.EnvoyVar, defaultTrust)
	order := []string{"NONE", "BASE", "MERGE_SLASHES", "DECODE_AND_MERGE_SLASHES"} // each one denies what the one before does
	for i, mode := range order {
		t.Run(mode, func(t *testing.T) {
			suite.Write(t, m.Config, authzMeshConfig+"pathNormalization: {normalization: "+mode+"}\n")
			marker := fmt.Sprintf("normal-%d", i)
			m.apply(t, "echo", marker, policyOf(marker, "",
				`selector: {matchLabels: {app: echo}}, action: DENY, rules: [{to: [{operation: {paths: [/admin, "/admin/*"]}}]}]`))
			explain := m.explain(t)
			for _, c := range []struct{ path, from string }{ // the first normalization that denies it; empty means none
				{"/admin", "NONE"},
				{"/admin?x", "NONE"},
				{"/admin/x", "NONE"},
				{"/admin#x", "NONE"}, // a fragment is removed before anything else reads the path
				{"/admin/x#?y", "NONE"},
				{"/x/../admin", "BASE"},
				{"/./admin", "BASE"},
				{`/x\..\admin`, "BASE"},
				{"/%61dmin", "BASE"},
				{"/x/%2e%2e/admin", "BASE"},
				{"//admin", "MERGE_SLASHES"},
				{"/x/..//admin//x", "MERGE_SLASHES"},
				{"/%2Fadmin", "DECODE_AND_MERGE_SLASHES"},
				{"/admin%2fx", "DECODE_AND_MERGE_SLASHES"},
				{"/%5Cadmin", "DECODE_AND_MERGE_SLASHES"},
				{"/x%2f..%2Fadmin", "DECODE_AND_MERGE_SLASHES"},
				{"/Admin", ""},
				{"/admin;x", ""},
				{"/%2561dmin", ""}, // decoded once, not twice
				{"/x?/admin", ""},
				{"/x#/admin", ""},
			} {
				want := http.StatusOK
				if slices.Contains(order[:i+1], c.from) {
					want = http.StatusForbidden
				}
				m.want(t, path(c.path), want)
				explain(path(c.path), want)
			}
			if mode != "NONE" { // the application may read it in another way
				m.want(t, path("/%00"), http.StatusBadRequest)
				explain(path("/%00"), http.StatusBadRequest)
			}
		})
	}
}

// want checks the status of a call.
func (m *authzMesh) want(t *testing.T, c call, status int) {
	t.Helper()
	if c.want != 0 {
		status = c.want
	}
	suite.Eventually(t, fmt.Sprintf("%d for %+v", status, c), func() bool {
		got, err := m.call(c)
		return err == nil && got == status
	})
}

// TestDryRunIsCounted: requests that a policy in a dry run would deny are allowed and counted.
func TestDryRunIsCounted(t *testing.T) {
	m := startAuthz(t, suite.EnvoyVar, defaultTrust)
	m.apply(t, "echo", "counted",
		policyOf("counted", dryRun, `selector: {matchLabels: {app: echo}}, action: DENY, rules: [{to: [{operation: {paths: [/no]}}]}]`))
	m.want(t, path("/no"), http.StatusOK)
	suite.Eventually(t, "it is counted", func() bool {
		stats, err := m.Pod("echo").Proxy.Stats(t.Context(), `istio_dry_run_deny_\.?shadow_denied$`)
		must.Succeed(t, err)
		for name, n := range stats {
			if regexp.MustCompile(`^http\.inbound_0\.0\.0\.0_8080`).MatchString(name) && n > 0 {
				return true
			}
		}
		return false
	})
}

// TestGateway: policies select a gateway by its labels.
func TestGateway(t *testing.T) {
	m := startAuthz(t, suite.EnvoyVar, defaultTrust)
	for _, c := range []struct {
		name, spec string
		in, out    []call
	}{
		{"paths", `action: DENY, rules: [{to: [{operation: {paths: ["/admin*"]}}]}]`, []call{path("/"), path("/x/admin")},
			[]call{path("/admin"), path("/%61dmin/x")}},
		{"addresses", "rules: [{from: [{source: {ipBlocks: [10.10.0.14]}}]}]", []call{path("/")}, nil},
		{"other addresses", "rules: [{from: [{source: {ipBlocks: [10.10.0.12]}}]}]", nil, []call{path("/")}},
		{"hosts", `rules: [{to: [{operation: {hosts: ["*.Example.com"]}}]}]`, []call{host("a.example.COM")}, []call{host("example.com")}},
		{"asked", `action: CUSTOM, provider: {name: by-grpc}, rules: [{to: [{operation: {paths: ["/ask*"]}}]}]`,
			[]call{path("/"), asked("/ask", passed)}, []call{withStatus(http.StatusUnauthorized, asked("/ask", "no"))}},
		{"no such provider", "action: CUSTOM, provider: {name: unheard-of}, rules: [{}]", nil, []call{path("/")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			marker := "at-" + strings.ReplaceAll(c.name, " ", "-")
			m.apply(t, "gateway", marker, policyOf(marker, "", "selector: {matchLabels: {app: gateway}}, "+c.spec))
			explain := m.explain(t)
			for _, one := range c.in {
				m.want(t, authzGateway(one), http.StatusOK)
				explain(authzGateway(one), http.StatusOK)
			}
			for _, one := range c.out {
				m.want(t, authzGateway(one), http.StatusForbidden)
				explain(authzGateway(one), http.StatusForbidden)
			}
			m.want(t, call{from: "plain", path: "/admin"}, http.StatusOK) // past the gateway
			if got := m.policies("gateway"); !slices.Equal(got, []string{"a/" + marker}) {
				t.Errorf("the gateway's policies are %q", got)
			}
			if got := m.policies("echo"); len(got) > 0 {
				t.Errorf("the server's policies are %q", got)
			}
		})
	}
}
