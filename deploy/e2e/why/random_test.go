package why

import (
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

var randomRequests = flag.Int("requests", 0, "how many random requests TestRandomRequests asks; 0: it is left out")

// TestRandomRequests asks many requests that nobody has thought of: hosts in all their spellings, ports, paths, methods
// and headers that almost match. Envoys answer what why says.
func TestRandomRequests(t *testing.T) {
	if *randomRequests == 0 {
		t.Skip("-requests says how many")
	}
	seed, _ := histories.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	m := suite.StartMesh(ctx, t, suite.MeshOptions{Network: network, Files: map[string]string{"mesh.yaml": meshYAML, "more.yaml": moreYAML}, CA: true})
	i, err := inspect.Read(t.Context(), ingest.Options{
		Logger: slog.New(slog.DiscardHandler), ConfigDir: m.Dir, Namespace: "istio-system", Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default(), NoWatch: true,
	}, catalog.Features())
	if err != nil {
		t.Fatal(err)
	}
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	for range *randomRequests {
		from := one("client", "client", "client", "other", "plain", "plain")
		q := request{from: from, method: one("GET", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "GET", "PUT", "get", one("GETX", "QUERY", "BREW", "M-SEARCH", "MSEARCH", "PROPFIND", "LINK", "SOURCE", "MKCALENDAR", "UNSUBSCRIBE", "ACL", "BIND", "Get", "PURGE", "REPORT", "TRACE")), headers: map[string]string{}}
		q.address = net.JoinHostPort(one("10.96.0.10", "10.96.0.10", "10.96.0.12", "10.96.0.11"), one("80", "80", "80", "8000"))
		q.host = one("echo", "echo.a", "echo.a.svc", "echo.a.svc.cluster.local", "ECHO", "Echo.A", "echo:80", "echo.a.svc.cluster.local:80", "echo:8080", "echo.", "echo.a.svc.cluster.local.", "10.96.0.10", "10.96.0.10:80", "second", "second.a:80", "second:8000",
			"second.a.svc.cluster.local:8000", "x.example.com", "only.example.com", "nobody", "nobody.a", "a.b.example.com", "pre.wild.org", "suffix.a.wild.org")
		if from == "plain" {
			q.address = net.JoinHostPort(gatewayPod, "8080")
			q.host = one("a.example.com", "only.example.com", "ONLY.example.com", "A.EXAMPLE.COM", "only.example.com:8080", "a.example.com:80", "a.example.com:9999", "example.com", "a.b.example.com", ".example.com", "echo", "echo.a.svc.cluster.local", "example.org", "10.10.0.16", "only.example.com.")
		}
		q.path = one("/exact", "/exact/", "/exact?x", "/Exact", "/EXACT", "/case", "/CASE/x", "/cAsE?x=1", "/folded/secret", "/case/secret", "/case/secrets/x?y", "/r12/a", "/r12/", "/r/12", "/r1/a/b?c=d", "/xr1/a", "/user", "/user?x=y", "/userx", "/user/../exact", "/user/./x", "/query?q=1", "/query?q=1&q=2",
			"/query?q=2&q=1", "/query?q=%31", "/query?Q=1", "/query?q=", "/query?q", "/query?q=abc", "/query?q=abc1", "/query/?x=1;q=1", "/moved", "/moved/", "/movedx?y=z", "/fault/x", "/faulty", "/aborted", "/empty/x", "/nobody/x", "/missing?x", "/weighted/x", "/denied", "/deny", "/", "//", "/?", "/%2e%2e/exact", "/exact%2F", "/exact%", "/%65xact",
			"/a//b", "/a/../exact", "/a/%2e%2e/exact", "/exact#frag", "/exact;p=1", "/\\exact", "/exact/..", "/pre", "/prefix", "/pre/x", "/regex/abc", "/regex/ABC", "/regex/a-b", "/hdr", "/hdr", "/hdr", "/hdr", "/method", "/method", "/scheme", "/port", "/src", "/mirror", "/rewrite/a/b", "/rewrite", "/rewritex", "/redirect/a", "/redirect")
		for range r.IntN(4) {
			k := one("x-user", "X-USER", "x-user", "x-denied", "x-num", "x-empty", "cookie", "x-list", "x-range", "authorization", "user-agent", "x-forwarded-proto")
			q.headers[k] = one("jason", "JASON", "mary", "ma", "jane", "ja", "xjason", "", " jason ", "jason,mary", "1", "10", "-5", "abc", "user=jason", "https", "http")
		}
		for k := range q.headers {
			if k == "X-USER" {
				delete(q.headers, "x-user")
			}
		}
		if !reaches(i, q) {
			continue
		}
		compare(t, m, i, q)
	}
}

// reaches reports whether it is known who answers a request: what is passed through goes to an address that nobody has.
func reaches(i *inspect.Inspection, r request) bool {
	host, port, _ := net.SplitHostPort(r.address)
	number, _ := strconv.Atoi(port)
	q := inspect.Query{Source: r.from + ".a", Host: host, Port: uint32(number), Method: r.method, Path: r.path, Headers: map[string]string{"host": r.host}}
	for k, v := range r.headers {
		q.Headers[k] = v
	}
	way, err := i.Why(q)
	if err != nil || way.Status != 200 || len(way.Arrivals) == 0 {
		return err != nil || way.Status != 200
	}
	return way.Arrivals[0].Pod != ""
}

var moreYAML = `apiVersion: v1
kind: Service
metadata: {name: second, namespace: a}
spec:
  clusterIP: 10.96.0.12
  selector: {svc: echo}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: http-more, port: 8000, targetPort: 8080}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: second, namespace: a}
spec:
  hosts: [second, "*.wild.org"]
  http:
  - match: [{uri: {prefix: /port}, port: 8000}]
    directResponse: {status: 208}
  - match: [{uri: {prefix: /pre/}}]
    rewrite: {uri: /}
    route: [{destination: {host: echo, subset: v1, port: {number: 80}}}]
  - match: [{uri: {regex: "/regex/[a-z]+"}}]
    directResponse: {status: 207}
  - match: [{uri: {exact: /hdr}, headers: {x-user: {}, x-num: {regex: "[0-9]+"}}}]
    directResponse: {status: 226}
  - match: [{uri: {exact: /hdr}, headers: {x-user: {prefix: ja}}, withoutHeaders: {x-num: {exact: "1"}}}]
    directResponse: {status: 205}
  - match: [{uri: {exact: /hdr}, headers: {x-empty: {exact: ""}}}]
    directResponse: {status: 203}
  - match: [{uri: {exact: /hdr}, headers: {cookie: {regex: ".*user=ja.*"}}}]
    directResponse: {status: 206}
  - match: [{method: {regex: "P.*"}, uri: {prefix: /method}}]
    directResponse: {status: 202}
  - match: [{method: {prefix: GET}, uri: {prefix: /method}}]
    directResponse: {status: 201}
  - match: [{scheme: {exact: https}, uri: {prefix: /scheme}}]
    directResponse: {status: 202}
  - match: [{sourceLabels: {app: nosuch}, uri: {prefix: /src}}]
    directResponse: {status: 202}
  - match: [{sourceNamespace: a, uri: {prefix: /src}}]
    directResponse: {status: 203}
  - match: [{uri: {prefix: /rewrite/}}, {uri: {exact: /rewrite}}]
    rewrite: {uri: /new}
    route: [{destination: {host: echo, subset: v2, port: {number: 80}}}]
  - match: [{uri: {prefix: /redirect}}]
    redirect: {authority: other.example.com, uri: /to, redirectCode: 302}
  - name: rest
    route: [{destination: {host: echo, subset: v2, port: {number: 80}}}]
`
