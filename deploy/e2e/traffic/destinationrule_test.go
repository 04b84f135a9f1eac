package traffic

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// The ports of the gateway.
const (
	requests    = "10.10.0.12:8000"
	connections = "10.10.0.12:9000"
)

// destinationRuleYAML has a gateway that forwards requests to web and connections to tcp, a server of both, and a
// client without a sidecar. There is no mutual TLS, so no proxy needs certificates. Requests for /one go to the
// server alone, and those for /again are retried there. twoYAML is one more server of web.
var destinationRuleYAML = suite.NamespacesYAML("istio-system", "a") + suite.PeerAuthenticationYAML("DISABLE") +
	`apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.96.0.10, selector: {web: "yes"}, ports: [{name: http, port: 80, targetPort: 8080},
    {name: http-half, port: 81, targetPort: 8081}]}
---
apiVersion: v1
kind: Service
metadata: {name: tcp, namespace: a}
spec: {clusterIP: 10.96.0.11, selector: {tcp: "yes"}, ports: [{name: tcp, port: 90, targetPort: 9090}]}
---
` +
	suite.GatewayPodYAML("gateway", "a", "10.10.0.12") +
	suite.PodYAML("client", "a", "10.10.0.13", "", suite.Outside) +
	suite.PodYAML("one", "a", "10.10.0.21", "", suite.Outside+`, web: "yes", tcp: "yes"`) +
	suite.ServiceYAML("one", "a", "10.96.0.12") +
	`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gateway, namespace: a}
spec:
  selector: {app: gateway}
  servers:
    - {port: {number: 8000, name: http, protocol: HTTP2}, hosts: ["*"]}
    - {port: {number: 9000, name: tcp, protocol: TCP}, hosts: ["*"]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: all, namespace: a}
spec:
  hosts: ["*"]
  gateways: [gateway]
  http:
  - match: [{uri: {prefix: /one}}]
    route: [{destination: {host: one}}]
    retries: {attempts: 0}
  - match: [{uri: {prefix: /again}}]
    route: [{destination: {host: one}}]
    retries: {attempts: 1, retryOn: 5xx}
  - match: [{uri: {prefix: /half}}]
    route: [{destination: {host: web, port: {number: 81}}}]
    retries: {attempts: 0}
  - route: [{destination: {host: web, port: {number: 80}}}]
    retries: {attempts: 0}
  tcp: [{route: [{destination: {host: tcp}}]}]
---
`

var twoYAML = suite.PodYAML("two", "a", "10.10.0.22", "", suite.Outside+`, web: "yes"`)

// destinationRuleMesh is the running mesh.
type destinationRuleMesh struct{ mesh }

func startDestinationRule(t *testing.T, config string) destinationRuleMesh {
	t.Helper()
	return destinationRuleMesh{start(t, destinationRuleYAML, suite.MeshOptions{Files: map[string]string{"two.yaml": twoYAML}, Config: config})}
}

// rule writes the DestinationRule of a service.
func (m destinationRuleMesh) rule(host, policy string) {
	m.t.Helper()
	text := fmt.Sprintf(
		"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: %s, namespace: a}\nspec: {host: %[1]s, trafficPolicy: %s}\n",
		host, policy)
	m.write(host+".yaml", text)
}

// answerLine writes the first line of a connection, quoted, and then copies the rest. If the line requests a tunnel, it
// accepts the tunnel first.
func answerLine(c net.Conn) {
	r := bufio.NewReader(c)
	first, err := r.ReadString('\n')
	if err != nil {
		return
	}
	if strings.Contains(first, " HTTP/1.1") {
		for line := first; strings.TrimSpace(line) != ""; {
			if line, err = r.ReadString('\n'); err != nil {
				return
			}
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	}
	if _, err := fmt.Fprintf(c, "%q\n", strings.TrimSpace(first)); err != nil {
		return
	}
	_, _ = io.Copy(c, r)
}

// connect sends a line through the gateway, and returns the connection and the line that comes back.
func (m destinationRuleMesh) connect() (net.Conn, string, error) {
	c, err := m.dial("client", connections)
	if err != nil {
		return nil, "", err
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		_ = c.Close()
		return nil, "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return c, strings.TrimSpace(line), err
}

// sees waits until the first line that the server received begins with the text.
func (m destinationRuleMesh) sees(what, want string) {
	m.t.Helper()
	suite.Eventually(m.t, what, func() bool {
		c, line, err := m.connect()
		if err != nil {
			return false
		}
		_ = c.Close()
		return strings.HasPrefix(line, want)
	})
}

// closesIdle waits until a connection that is silent is closed.
func (m destinationRuleMesh) closesIdle(what string) {
	m.t.Helper()
	suite.Eventually(m.t, what, func() bool {
		c, _, err := m.connect()
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = io.Copy(io.Discard, c) // until it is closed, or the deadline
		return err == nil
	})
}

// TestConnections: connections go through a tunnel by CONNECT or POST, begin with a PROXY header of either version with
// the client's address, and are closed when they are idle.
func TestConnections(t *testing.T) {
	m := startDestinationRule(t, "")
	m.accept("one", "0.0.0.0", 9090, answerLine)
	m.sees("without a rule", `"hello"`)
	m.rule("tcp", `{tunnel: {protocol: CONNECT, targetHost: far.example.com, targetPort: 443}}`)
	m.sees("CONNECT", `"CONNECT far.example.com:443 HTTP/1.1"`)
	m.rule("tcp", `{tunnel: {protocol: POST, targetHost: far.example.com, targetPort: 443}}`)
	m.sees("POST", `"POST / HTTP/1.1"`)
	m.rule("tcp", `{proxyProtocol: {}}`)
	m.sees("PROXY, version 1", `"PROXY TCP4 10.10.0.13 10.10.0.12 `)
	m.rule("tcp", `{proxyProtocol: {version: V2}}`)
	m.sees("PROXY, version 2", `""`) // its header begins with an empty line
	m.rule("tcp", `{connectionPool: {tcp: {idleTimeout: 0.2s}}}`)
	m.closesIdle("an idle connection ends")
	m.rule("tcp",
		`{portLevelSettings: [{port: {number: 90}, connectionPool: {tcp: {maxConnections: 5}}}], tunnel: {protocol: CONNECT, targetHost: `+
			`far.example.com, targetPort: 443}}`)
	m.sees("CONNECT beside settings of the port", `"CONNECT far.example.com:443 HTTP/1.1"`)
}

// TestDefaultPolicy: the mesh's own connection pool is in force for services without a rule.
func TestDefaultPolicy(t *testing.T) {
	m := startDestinationRule(t, "defaultTrafficPolicy: {connectionPool: {tcp: {idleTimeout: 0.2s}}}\n")
	m.accept("one", "0.0.0.0", 9090, answerLine)
	m.closesIdle("an idle connection ends")
	m.rule("tcp", `{tunnel: {protocol: CONNECT, targetHost: far.example.com, targetPort: 443}}`)
	m.sees("CONNECT", `"CONNECT far.example.com:443 HTTP/1.1"`)
	m.closesIdle("an idle connection through the tunnel ends")
}

// TestRequests: requests keep the client's version of HTTP if the rule says so, and an endpoint is ejected only for the
// codes that the rule names.
func TestRequests(t *testing.T) {
	m := startDestinationRule(t, "")
	for name, code := range map[string]int{"one": http.StatusOK, "two": http.StatusTooManyRequests} {
		m.handle(name, 8080, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Server", name)
			w.Header().Set("X-Proto", r.Proto)
			w.WriteHeader(code)
		})
	}
	answers := func(h2 bool, header string) map[string]int {
		protocols := &http.Protocols{}
		protocols.SetHTTP1(!h2)
		protocols.SetUnencryptedHTTP2(h2)
		client := &http.Client{
			Timeout: 10 * time.Second, Transport: &http.Transport{Protocols: protocols, DialContext: m.Pod("client").Location.DialContext},
		}
		defer client.CloseIdleConnections()
		by := map[string]int{}
		for range 30 {
			resp, err := client.Get("http://" + requests + "/")
			if err != nil {
				by[""]++
				continue
			}
			_ = resp.Body.Close()
			by[resp.Header.Get(header)]++
		}
		return by
	}
	only := func(what string, h2 bool, header string, want ...string) {
		t.Helper()
		suite.Eventually(t, what, func() bool { return slices.Equal(slices.Sorted(maps.Keys(answers(h2, header))), want) })
	}
	only("HTTP/2 becomes HTTP/1.1", true, "X-Proto", "HTTP/1.1")
	m.rule("web", `{connectionPool: {http: {useClientProtocol: true, http2KeepAlive: {interval: 30s, timeout: 5s}, maxConcurrentStreams: 9}}}`)
	only("HTTP/2 stays", true, "X-Proto", "HTTP/2.0")
	only("HTTP/1.1 stays", false, "X-Proto", "HTTP/1.1")
	only("both endpoints", false, "X-Server", "one", "two")
	const detection = `outlierDetection: {consecutive5xxErrors: 1, interval: 600s, baseEjectionTime: 600s, maxEjectionPercent: 100`
	m.rule("web", `{retryBudget: {percent: 50}, `+detection+`, outlierDetectionHttpErrorCodes: [429, 503]}}`)
	only("the endpoint with 429 is ejected", false, "X-Server", "one")
	m.rule("web", `{retryBudget: {percent: 50}, `+detection+`, outlierDetectionHttpErrorCodes: [418]}}`)
	only("429 is no error again", false, "X-Server", "one", "two")
}
