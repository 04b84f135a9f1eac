package login

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// The addresses of programs.
const (
	gateway  = "10.10.0.11:8080"
	proxy    = "10.10.0.13:4180"
	identity = "10.10.0.14:9000"
)

// The hosts of the gateway: one that wants a login, and one that does not.
const (
	closed = "app.example"
	open   = "public.example"
)

// meshYAML has a gateway, a workload with a sidecar, and pods for oauth2-proxy and the identity provider.
var meshYAML = suite.NamespacesYAML("istio-system", "shop", "login") +
	suite.GatewayPodYAML("gateway", "istio-system", "10.10.0.11") +
	suite.GatewayYAML("gateway", "istio-system", 8080) +
	suite.PodYAML("web", "shop", "10.10.0.12", `"-http=8080"`, suite.Sidecar) +
	suite.ServiceYAML("web", "shop", "10.96.0.10") +
	suite.PodYAML("oauth2-proxy", "login", "10.10.0.13", "", suite.Outside) +
	suite.ServiceYAML("oauth2-proxy", "login", "10.96.0.11", "{name: http, port: 4180, targetPort: 4180}") +
	suite.PodYAML("identity", "login", "10.10.0.14", "", suite.Outside) +
	suite.PodYAML("browser", "shop", "10.10.0.15", "", suite.Outside) + `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [` + closed + `, ` + open + `]
  gateways: [istio-system/gateway]
  http: [{route: [{destination: {host: web.shop.svc.cluster.local}}]}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: login, namespace: istio-system}
spec:
  selector: {matchLabels: {app: gateway}}
  action: CUSTOM
  provider: {name: oauth2-proxy}
  rules: [{to: [{operation: {hosts: [` + closed + `, "` + closed + `:*"]}}]}]
---
# Pages of oauth2-proxy itself: an answer 200 means that the request is allowed, and must not let it pass.
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: login-pages, namespace: istio-system}
spec:
  selector: {matchLabels: {app: gateway}}
  action: DENY
  rules: [{to: [{operation: {hosts: [` + closed + `, "` + closed + `:*"], paths: ["/oauth2/*", /ping, /ready, /robots.txt]}}]}]
`

// meshConfig has the provider, with the headers that oauth2-proxy needs, and its answers that matter.
const meshConfig = `
extensionProviders:
- name: oauth2-proxy
  envoyExtAuthzHttp:
    service: oauth2-proxy.login.svc.cluster.local
    port: 4180
    timeout: 10s
    includeRequestHeadersInCheck: [authorization, cookie, accept]
    headersToUpstreamOnAllow: [x-auth-request-user, x-auth-request-email, x-auth-request-groups, x-auth-request-preferred-username]
    headersToDownstreamOnAllow: [set-cookie]
    headersToDownstreamOnDeny: [content-type, set-cookie]
`

// refresh is the age after which oauth2-proxy renews a session.
const refresh = time.Second

// loginMesh is a mesh whose gateway asks oauth2-proxy.
type loginMesh struct {
	*suite.Mesh
	t     *testing.T
	proxy *suite.Program
}

func start(t *testing.T) *loginMesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	m := &loginMesh{t: t, Mesh: suite.StartMesh(ctx, t, suite.MeshOptions{
		Network: network, CA: true, Config: meshConfig, Files: map[string]string{"mesh.yaml": meshYAML},
	})}
	m.Run(t, "identity", "mockoidc", nil, identity, "app", "not-a-secret")
	m.answers("http://" + identity + "/oidc/.well-known/openid-configuration")
	m.startProxy()
	return m
}

// startProxy starts oauth2-proxy, and waits until it answers.
func (m *loginMesh) startProxy() {
	m.t.Helper()
	m.proxy = m.Run(m.t, "oauth2-proxy", "oauth2-proxy", nil,
		"--http-address=0.0.0.0:4180", "--upstream=static://200", "--reverse-proxy", "--trusted-proxy-ip=10.10.0.11", "--set-xauthrequest",
		"--provider=oidc", "--oidc-issuer-url=http://"+identity+"/oidc", "--client-id=app", "--client-secret=not-a-secret",
		"--scope=openid email profile groups", "--code-challenge-method=S256", "--skip-provider-button", "--email-domain=*",
		"--redirect-url=http://"+closed+"/oauth2/callback",
		"--cookie-secret=0123456789abcdef0123456789abcdef", "--cookie-secure=false", "--cookie-refresh="+refresh.String())
	m.answers("http://" + proxy + "/ping")
}

// answers waits until a URL answers a pod outside the mesh.
func (m *loginMesh) answers(url string) {
	m.t.Helper()
	client := suite.Client(m.Pod("browser"), nil)
	suite.Eventually(m.t, url+" answers", func() bool {
		resp, err := client.Get(url)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// browser is a client that keeps cookies.
type browser struct {
	t      *testing.T
	client *http.Client
	header http.Header // of its requests
}

func (m *loginMesh) browser() *browser {
	jar, err := cookiejar.New(nil)
	must.Succeed(m.t, err)
	b := &browser{t: m.t, client: suite.Client(m.Pod("browser"), map[string]string{closed + ":80": gateway, open + ":80": gateway})}
	b.client.Jar, b.header = jar, http.Header{}
	return b
}

// get sends one request.
func (b *browser) get(url string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, url, nil)
	must.Succeed(b.t, err)
	req.Header = b.header.Clone()
	resp, err := b.client.Do(req)
	must.Succeed(b.t, err)
	return resp
}

// visit sends requests as long as the answers redirect, and returns the answer of the workload, the last URL, and the
// hosts of all URLs.
func (b *browser) visit(first string) (answer echo.Answer, last *url.URL, hosts []string) {
	b.t.Helper()
	for next, n := first, 0; n < 10; n++ {
		resp := b.get(next)
		hosts = append(hosts, resp.Request.URL.Host)
		if resp.StatusCode == http.StatusOK {
			answer, err := echo.Decode(resp)
			must.Succeed(b.t, err)
			return answer, resp.Request.URL, hosts
		}
		resp.Body.Close()
		location, err := resp.Location()
		if err != nil || resp.StatusCode != http.StatusFound {
			b.t.Fatalf("%s: %s, %v", next, resp.Status, resp.Header)
		}
		next = location.String()
	}
	b.t.Fatalf("no end of redirects: %v", hosts)
	return echo.Answer{}, nil, nil
}

// status sends one request and returns the status of its response.
func (b *browser) status(url string) int {
	b.t.Helper()
	resp := b.get(url)
	resp.Body.Close()
	return resp.StatusCode
}

// sentToLogin reports whether a request is answered by a redirect to the identity provider.
func (b *browser) sentToLogin(url string) bool {
	b.t.Helper()
	resp := b.get(url)
	resp.Body.Close()
	to, err := resp.Location()
	return err == nil && resp.StatusCode == http.StatusFound && to.Host == identity
}

// session returns the cookie of the session, or nil.
func (b *browser) session() *http.Cookie {
	for _, c := range b.client.Jar.Cookies(&url.URL{Scheme: "http", Host: closed, Path: "/"}) {
		if c.Name == "_oauth2_proxy" {
			return c
		}
	}
	return nil
}
