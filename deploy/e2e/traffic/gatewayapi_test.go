package traffic

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// more is another Gateway, which is bound to the Service of the first and so has the same proxy. Only the first of its
// listeners is in force, and a rule of its route is never reached by requests to other hosts.
const more = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: second, namespace: ingress}
spec:
  gatewayClassName: istiod-lite
  addresses: [{type: Hostname, value: bookinfo-istio.ingress.svc.cluster.local}]
  listeners:
  - {name: http, port: 80, protocol: HTTP, hostname: second.example.com, allowedRoutes: {namespaces: {from: All}}}
  - {name: again, port: 80, protocol: TCP}
  - {name: datagrams, port: 80, protocol: UDP}
  - {name: unexposed, port: 81, protocol: HTTP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: second, namespace: payments}
spec:
  parentRefs: [{name: second, namespace: ingress, sectionName: http}]
  rules:
  - matches: [{path: {type: Exact, value: /nothing}}]
    backendRefs: [{name: nothing, port: 80}]
  - matches: [{path: {type: RegularExpression, value: "/v[0-9]+"}, queryParams: [{name: who, value: me}]}]
    filters: [{type: URLRewrite, urlRewrite: {hostname: ratings, path: {type: ReplaceFullPath, replaceFullPath: /all}}}]
    backendRefs: [{name: ratings, namespace: bookinfo, port: 9080}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: uninvited, namespace: payments}
spec:
  parentRefs: [{name: bookinfo, namespace: ingress, sectionName: http}]
  rules: [{backendRefs: [{name: ledger, port: 9000}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: payments, namespace: bookinfo}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: payments}]
  to: [{group: "", kind: Service, name: ratings}]
`

// TestSample runs the sample unchanged: each kind of route leads to its backends only, and there are no findings.
func TestSample(t *testing.T) {
	m := startGatewayAPI(t, nil)
	if f := m.validate(); f != "" {
		t.Errorf("of the sample, these are wrong:\n%s", f)
	}
	t.Run("HTTPRoute", m.requests)
	t.Run("HTTPRoute of a Service", m.services)
	t.Run("GRPCRoute", m.calls)
	t.Run("TLS", m.tls)
	t.Run("TCPRoute", func(t *testing.T) {
		if got, err := m.line(ledger, "hello"); err != nil || got != "ledger-v1 hello" {
			t.Errorf("%q, %v", got, err)
		}
	})
	m.healthy()
}

func (m gatewayAPIMesh) requests(t *testing.T) {
	page := m.outside("http://bookinfo.example.com/", nil)
	if page.by() != "productpage-v1" || len(page.answer.Calls) != 2 || page.answer.Calls[0].Name != "details-v1" {
		t.Errorf("the page is %+v", page)
	}
	if got := m.outside("http://other.example.com/", nil).status; got != http.StatusNotFound {
		t.Errorf("a host that no route has gets %d", got)
	}

	// Filters change the path and headers, and send a copy to the audit.
	const audit = "outbound|9080||audit.bookinfo.svc.cluster.local"
	before := m.received("ingress", audit)
	details := m.outside("http://bookinfo.example.com/details/7?header=x-from", map[string]string{"x-from": "outside"})
	if details.by() != "details-v1" || details.answer.Path != "/7" || details.answer.Headers["x-from"] != "gateway" ||
		details.header.Get("x-served-by") != "details" {
		t.Errorf("details are %+v", details)
	}
	suite.Eventually(t, "the audit gets a copy", func() bool { return m.received("ingress", audit) > before })
	if got := m.received("ingress", audit); page.header.Get("x-served-by") != "" || got != before+1 {
		t.Errorf("%d copies of one request; the page has headers %v", got-before, page.header)
	}

	// By path and method: the vault is reached over TLS.
	if got := m.outside("http://bookinfo.example.com/vault", nil).by(); got != "vault-v1" {
		t.Errorf("/vault is answered by %s", got)
	}
	if got := m.outside("http://bookinfo.example.com/vault/more", nil).by(); got != "productpage-v1" {
		t.Errorf("what only begins with /vault is answered by %s", got)
	}
	moved := m.outside("http://www.example.com/a?b=c", nil)
	if moved.status != http.StatusMovedPermanently || moved.header.Get("location") != "https://bookinfo.example.com/a?b=c" {
		t.Errorf("the old host answers %d, %v", moved.status, moved.header)
	}
}

func (m gatewayAPIMesh) services(t *testing.T) {
	for _, ask := range []func(header map[string]string) gatewayAPIReply{
		func(h map[string]string) gatewayAPIReply { return m.outside("http://reviews.example.com/", h) },
		func(h map[string]string) gatewayAPIReply {
			return m.inside("productpage-v1", "http://reviews:9080/", h)
		},
	} {
		first := 0
		for range 20 {
			if got := ask(map[string]string{"end-user": "jason"}).by(); got != "reviews-v2" {
				t.Fatalf("jason's reviews are %s's", got)
			}
			if ask(nil).by() == "reviews-v1" {
				first++
			}
		}
		if first < 5 { // 18 of 20 are expected
			t.Errorf("reviews-v1 answers %d of 20 requests", first)
		}
	}
	// A route for a Service applies to its port, and not to the Service that it leads to.
	if got := m.inside("productpage-v1", "http://ratings:9080/", map[string]string{"end-user": "jason"}).by(); got != "ratings-v1" {
		t.Errorf("ratings are answered by %s", got)
	}
	m.edit("reviews-split.yaml", "weight: 90", "weight: 0")
	m.becomes("all reviews are those of v2", "40 of 40", func() string {
		n := 0
		for range 20 {
			for _, r := range []gatewayAPIReply{m.outside("http://reviews.example.com/", nil),
				m.inside("productpage-v1", "http://reviews:9080/", nil)} {
				if r.by() == "reviews-v2" {
					n++
				}
			}
		}
		if n == 40 {
			return "40 of 40"
		}
		return "fewer"
	})
}

func (m gatewayAPIMesh) calls(t *testing.T) {
	if got, err := m.check("details.example.com"); err != nil || got != "details-v1" {
		t.Errorf("Check is answered by %q, %v", got, err)
	}
	if err := m.list("details.example.com"); status.Code(err) != codes.Unimplemented {
		t.Errorf("List, which no rule has, is answered with %v", err)
	}
	if got, err := m.check("reviews-grpc.example.com"); err == nil {
		t.Errorf("another host is answered by %q", got)
	}
}

func (m gatewayAPIMesh) tls(t *testing.T) {
	if got := m.outside("https://bookinfo.example.com/", nil).by(); got != "productpage-v1" {
		t.Errorf("over TLS the page is answered by %s", got)
	}
	// The vault answers on this name, because the Gateway has no such certificate.
	vault := m.outside("https://vault.example.com/vault", nil)
	if vault.by() != "vault-v1" || vault.answer.Path != "/vault" {
		t.Errorf("the vault is %+v", vault)
	}
	for _, name := range []string{"www.example.com", ""} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		d := &tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}} //nolint:gosec // The handshake must fail.
		conn, err := d.DialContext(ctx, "tcp", secure)
		cancel()
		if err == nil {
			conn.Close()
			t.Errorf("the name %q, which no listener has, is served", name)
		}
	}
}

// TestRefused: invalid references are not served, are findings with their place, and are served once they are
// corrected.
func TestRefused(t *testing.T) {
	m := startGatewayAPI(t, map[string]string{"more.yaml": more})
	finds := func(says ...string) {
		t.Helper()
		suite.Eventually(t, says[0]+" is found", func() bool {
			for line := range strings.Lines(m.validate()) {
				all := true
				for _, s := range says {
					all = all && strings.Contains(line, s)
				}
				if all {
					return true
				}
			}
			return false
		})
	}

	// Both Gateways are on one proxy.
	if got := m.outside("http://bookinfo.example.com/", nil).by(); got != "productpage-v1" {
		t.Errorf("beside another Gateway, the page is answered by %s", got)
	}
	second := m.outside("http://second.example.com/v12?who=me&header=host", nil)
	if second.by() != "ratings-v1" || second.answer.Path != "/all" || second.answer.Headers["host"] != "ratings" {
		t.Errorf("the second Gateway answers %+v", second)
	}
	for url, want := range map[string]int{
		"http://second.example.com/v12?who=you":       http.StatusNotFound,
		"http://second.example.com/vx?who=me":         http.StatusNotFound,
		"http://second.example.com/nothing":           http.StatusInternalServerError,
		"http://nobody.example.com/":                  http.StatusNotFound, // uninvited does not attach
		"http://second.example.com.evil.example.com/": http.StatusNotFound,
	} {
		if got := m.outside(url, nil).status; got != want {
			t.Errorf("%s is answered with %d, want %d", url, got, want)
		}
	}
	finds("more.yaml:9:", "Gateway ingress/second", "spec.listeners[1]", "another listener")
	finds("more.yaml:10:", "Gateway ingress/second", "spec.listeners[2].protocol", "protocol UDP is not supported")
	finds("more.yaml:11:", "Gateway ingress/second", "spec.listeners[3].port", "has port 81")
	finds("more.yaml:20:", "HTTPRoute payments/second", "spec.rules[0].backendRefs[0].name", "not found")
	finds("more.yaml:29:", "HTTPRoute payments/uninvited", "spec.parentRefs[0]", `namespace "payments" is not allowed`)

	// A reference to another namespace is refused without a grant, for each kind of route.
	vault := func() string { return m.outside("http://bookinfo.example.com/vault", nil).by() }
	through := func() string {
		r, err := m.get(new(net.Dialer).DialContext, secure, "https://vault.example.com/vault", nil)
		if err != nil {
			return "refused"
		}
		return r.by()
	}
	line := func() string {
		got, err := m.line(ledger, "hello")
		if err != nil {
			return "refused"
		}
		return got
	}
	const granted, revoked = "namespace: bookinfo}", "namespace: nobody}"
	m.edit("payments.yaml", granted, revoked)
	m.becomes("/vault without a grant", "500", vault)
	m.becomes("TLS without a grant", "refused", through)
	m.becomes("TCP without a grant", "refused", line)
	finds("routes.yaml:", "HTTPRoute bookinfo/productpage", "spec.rules[2].backendRefs[0]", "missing a ReferenceGrant?")
	finds("routes.yaml:", "TLSRoute bookinfo/vault", "missing a ReferenceGrant?")
	finds("routes.yaml:", "TCPRoute bookinfo/ledger", "missing a ReferenceGrant?")
	m.edit("payments.yaml", revoked, granted)
	m.becomes("/vault with a grant", "vault-v1", vault)
	m.becomes("TLS with a grant", "vault-v1", through)
	m.becomes("TCP with a grant", "ledger-v1 hello", line)

	// The vault's certificate has one name, and its roots are required.
	m.edit("payments.yaml", "hostname: vault.example.com", "hostname: other.example.com")
	m.becomes("/vault by another name", "503", vault)
	m.edit("payments.yaml", "hostname: other.example.com", "hostname: vault.example.com")
	m.becomes("/vault by its name", "vault-v1", vault)
	m.edit("payments.yaml", "kind: ConfigMap, name: ca", "kind: ConfigMap, name: none")
	m.becomes("/vault without roots", "503", vault)
	finds("payments.yaml:", "BackendTLSPolicy payments/vault", "spec.validation.caCertificateRefs[0]", "not found")
	m.edit("payments.yaml", "kind: ConfigMap, name: none", "kind: ConfigMap, name: ca")
	m.becomes("/vault with its roots", "vault-v1", vault)

	// The Gateway accepts routes of namespaces with a label.
	page := func() string { return m.outside("http://bookinfo.example.com/", nil).by() }
	m.edit("mesh.yaml", `expose: "true"`, `expose: "false"`)
	m.becomes("the page of a namespace without the label", "404", page)
	m.becomes("the ledger of a namespace without the label", "refused", line)
	if got := m.outside("http://second.example.com/v1?who=me", nil).by(); got != "ratings-v1" {
		t.Errorf("the second Gateway, which takes all namespaces, answers %s", got)
	}
	finds("routes.yaml:7:", "HTTPRoute bookinfo/productpage", "spec.parentRefs[0]", `namespace "bookinfo" is not allowed`)
	m.edit("mesh.yaml", `expose: "false"`, `expose: "true"`)
	m.becomes("the page of a namespace with the label", "productpage-v1", page)
	m.becomes("the ledger of a namespace with the label", "ledger-v1 hello", line)
	m.healthy()
}
