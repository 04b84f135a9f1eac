package traffic

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

const whyGatewayPod = "10.10.0.16"

var whyYAML = suite.NamespacesYAML("istio-system", "a") + `apiVersion: v1
kind: Service
metadata: {name: echo, namespace: a}
spec:
  clusterIP: 10.96.0.10
  selector: {svc: echo}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: nobody, namespace: a}
spec:
  clusterIP: 10.96.0.11
  selector: {svc: nobody}
  ports: [{name: http, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: legacy, namespace: a}
spec:
  clusterIP: 10.96.0.12
  selector: {svc: legacy}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: legacy, namespace: a}
spec: {host: legacy, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}
---
apiVersion: v1
kind: Service
metadata: {name: simple, namespace: a}
spec:
  clusterIP: 10.96.0.13
  selector: {svc: echo}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: simple, namespace: a}
spec: {host: simple, trafficPolicy: {tls: {mode: SIMPLE}}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: echo, namespace: a}
spec:
  host: echo
  subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}, {name: v3, labels: {version: v3}}]
---
` +
	suite.GatewayYAML("gateway", "a", 8080) +
	`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: echo, namespace: a}
spec:
  hosts: [echo, "*.example.com"]
  gateways: [mesh, gateway]
  http:
  - match: [{uri: {prefix: /claimed}, headers: {"@request.auth.claims.groups": {exact: admin}}}]
    directResponse: {status: 202}
  - match: [{uri: {prefix: /scoped}, headers: {"@request.auth.claims.scope": {exact: write}}}]
    directResponse: {status: 206}
  - match: [{uri: {exact: /exact}, method: {exact: PUT}}]
    route: [{destination: {host: echo, subset: v2}}]
  - match: [{uri: {exact: /exact}}]
    route: [{destination: {host: echo, subset: v1}}]
  - match: [{uri: {prefix: /CASE}, ignoreUriCase: true}]
    rewrite: {uri: /folded}
    route: [{destination: {host: echo, subset: v2}}]
  - match: [{uri: {regex: "/r[0-9]+/.*"}, headers: {x-user: {regex: "ja.*"}}}]
    rewrite: {uriRegexRewrite: {match: "^/r([0-9]+)/(.*)$", rewrite: '/\2/\1'}}
    route: [{destination: {host: echo, subset: v1}}]
  - match: [{uri: {prefix: /user}, headers: {x-user: {exact: jason}}}, {uri: {prefix: /user}, headers: {x-user: {prefix: ma}}}]
    route: [{destination: {host: echo, subset: v2}}]
  - match: [{uri: {prefix: /user}, withoutHeaders: {x-user: {}}}]
    directResponse: {status: 401}
  - match: [{uri: {prefix: /query}, queryParams: {q: {exact: "1"}}}]
    route: [{destination: {host: echo, subset: v1}}]
  - match: [{uri: {prefix: /query}, queryParams: {q: {regex: "[a-z]+"}}}]
    route: [{destination: {host: echo, subset: v2}}]
  - match: [{uri: {prefix: /moved}}]
    redirect: {uri: /exact, redirectCode: 308}
  - match: [{uri: {prefix: /fault}}]
    fault: {abort: {percentage: {value: 100}, httpStatus: 418}}
    route: [{destination: {host: echo}}]
  - match: [{uri: {prefix: /aborted}}]
    fault: {abort: {percentage: {value: 100}, grpcStatus: ABORTED}}
    route: [{destination: {host: echo}}]
  - match: [{uri: {prefix: /empty}}]
    route: [{destination: {host: echo, subset: v3}}]
  - match: [{uri: {prefix: /nobody}}]
    route: [{destination: {host: nobody}}]
  - match: [{uri: {prefix: /missing}}]
    route: [{destination: {host: missing.example.org}}]
  - match: [{uri: {prefix: /weighted}}]
    route: [{destination: {host: echo, subset: v1}, weight: 100}, {destination: {host: echo, subset: v2}, weight: 0}]
  - match: [{authority: {exact: only.example.com}}]
    directResponse: {status: 204}
  - match: [{uri: {prefix: /denied}}]
    headers: {request: {add: {x-denied: "yes"}}}
    route: [{destination: {host: echo, subset: v1}}]
  - match: [{uri: {prefix: /}}]
    route: [{destination: {host: echo, subset: v2}}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: a}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: echo, namespace: a}
spec:
  selector: {matchLabels: {svc: echo}}
  action: DENY
  rules:
  - when: [{key: "request.headers[x-denied]", values: ["*"]}]
  - to: [{operation: {paths: ["/folded/secret*"]}}]
  - from: [{source: {notPrincipals: [cluster.local/ns/a/sa/client, cluster.local/ns/a/sa/gateway]}}]
---
` + suite.PodYAML("echo-1", "a", "10.10.0.11", `"-http=8080"`, suite.Sidecar+", svc: echo, version: v1") +
	suite.PodYAML("echo-2", "a", "10.10.0.12", `"-http=8080"`, suite.Sidecar+", svc: echo, version: v2") +
	suite.PodYAML("legacy", "a", "10.10.0.17", `"-http=8080"`, suite.Outside+", svc: legacy") +
	suite.PodYAML("client", "a", "10.10.0.13", "", suite.Sidecar) +
	suite.PodYAML("other", "a", "10.10.0.14", "", suite.Sidecar) +
	suite.PodYAML("plain", "a", "10.10.0.15", "", suite.Outside) +
	suite.GatewayPodYAML("gateway", "a", whyGatewayPod)

// TestAgreesWithEnvoys: for every combination of paths, methods and headers that the routes distinguish, the answer of
// real Envoys is what why says, also from the line of the access log: from a sidecar, from one whose calls are denied,
// and through a gateway. This includes valid and invalid tokens with claims that routes and policies require.
func TestAgreesWithEnvoys(t *testing.T) {
	tokens := newWhyIssuer(t)
	log, config := loggingTo(t)
	m := start(t, whyYAML, suite.MeshOptions{Files: map[string]string{"tokens.yaml": tokens.policies()}, CA: true, Config: config})
	i := m.inspection()
	paths := []string{
		"/exact", "/exact/", "/Exact?x=1", "/case/x", "/Case/secret", "/cases", "/r12/a", "/r/a", "/user", "/user/x", "/query", "/query?q=1",
		"/query?q=abc", "/query?p=1&q=1", "/query?q=A", "/moved/x",
		"/fault", "/aborted", "/empty", "/nobody", "/missing", "/weighted", "/denied", "/", "/x/../exact", "/%65xact", "//exact",
	}
	headers := []map[string]string{nil, {"x-user": "jason"}, {"x-user": "mary"}, {"X-User": "jane"}, {"x-denied": "a"}}
	n := 0
	for _, path := range paths {
		for _, h := range headers {
			for _, method := range []string{"GET", "PUT"} {
				requests := []request{{from: "client", address: "10.96.0.10:80", host: "echo", method: method, path: path, headers: h}}
				if method == "GET" {
					requests = append(requests,
						request{from: "plain", address: net.JoinHostPort(whyGatewayPod, "8080"), host: "a.example.com", method: method, path: path,
							headers: h},
						request{from: "plain", address: net.JoinHostPort(whyGatewayPod, "8080"), host: "only.example.com", method: method, path: path,
							headers: h},
						request{from: "plain", address: net.JoinHostPort(whyGatewayPod, "8080"), host: "example.org", method: method, path: path, headers: h},
					)
				}
				if h == nil {
					requests = append(requests,
						request{from: "other", address: "10.96.0.10:80", host: "echo.a:80", method: method, path: path, headers: h})
				}
				for _, r := range requests {
					if n++; !testing.Short() || n%4 == 0 { // the lengths of the lists are odd, so each entry is used
						compare(t, m, i, r)
					}
				}
			}
		}
	}
	for _, r := range []request{ // TLS that no proxy or no chain takes
		{from: "client", address: "10.96.0.12:80", host: "legacy", method: "GET", path: "/"},
		{from: "client", address: "10.96.0.13:80", host: "simple", method: "GET", path: "/"},
	} {
		n++
		compare(t, m, i, r)
	}
	for _, r := range tokens.requests() {
		n++
		compare(t, m, i, r)
	}
	t.Logf("%d requests", n)
	m.healthy()
	explainLines(t, i, log, " UH ", " NC ", " NR ", " FI ", "rbac_access_denied_matched_policy[ns[", "jwt_authn_access_denied", "via_upstream")
}

func compare(t *testing.T, m mesh, i *inspect.Inspection, r request) {
	t.Helper()
	host, port, _ := net.SplitHostPort(r.address)
	number, _ := strconv.Atoi(port)
	q := inspect.Query{Source: r.from + ".a", Host: host, Port: uint32(number), Method: r.method, Path: r.path,
		Headers: map[string]string{"host": r.host}, Now: time.Now()}
	for k, v := range r.headers {
		q.Headers[k] = v
	}
	way, err := i.Why(q)
	if err != nil {
		t.Errorf("%+v: %v", r, err)
		return
	}
	var names []string
	path := ""
	for list := way.Arrivals; len(list) > 0 && way.Status == 200; {
		var next []inspect.Arrival
		for _, a := range list {
			next = append(next, a.Next...)
			if len(a.Next) == 0 && a.Answer != nil {
				name, _, _ := strings.Cut(a.Pod, ".")
				names, path = append(names, name), a.Answer.Forwarded.Path
			}
		}
		list = next
	}
	var got response
	suite.Eventually(t, fmt.Sprintf("an answer to %+v", r), func() bool {
		got, err = m.do(r)
		return err == nil
	})
	var answer echo.Answer // It is empty if a proxy has answered.
	if got.status == http.StatusOK {
		_ = json.Unmarshal(got.body, &answer)
	}
	if got.status != way.Status || got.status == 200 && answer.Name == "" && len(names) > 0 && names[0] != "gateway" ||
		answer.Name != "" && (!slices.Contains(names, answer.Name) || strings.TrimSuffix(answer.Path, "?") != pathOf(path)) {
		t.Errorf("%+v gets %d %+v, and why says status %d (%s), pods %v, path %s", r, got.status, answer, way.Status, way.Reason, names, path)
	}
}

// pathOf returns the path without its query, as the server reports it.
func pathOf(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}
