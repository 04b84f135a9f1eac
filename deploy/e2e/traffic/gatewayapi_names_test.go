package traffic

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// namesGateway is a Gateway whose listener terminates TLS for lines, and two TLSRoutes. Each has its own name, and both
// have a common one.
const namesGateway = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: names, namespace: ingress}
spec:
  gatewayClassName: istio
  addresses: [{type: Hostname, value: names.ingress.svc.cluster.local}]
  listeners:
  - name: lines
    port: 9443
    protocol: TLS
    hostname: "*.lines.example.com"
    tls: {mode: Terminate, certificateRefs: [{name: bookinfo}]}
    allowedRoutes: {namespaces: {from: All}}
---
apiVersion: v1
kind: Service
metadata: {name: names, namespace: ingress}
spec:
  clusterIP: 10.96.0.3
  selector: {gateway.networking.k8s.io/gateway-name: bookinfo}
  ports: [{name: tls, port: 9443, targetPort: 9443}]
---
apiVersion: v1
kind: Service
metadata: {name: journal, namespace: payments}
spec:
  clusterIP: 10.96.0.51
  selector: {app: journal}
  ports: [{name: tcp, port: 9000, targetPort: 9001}]
---
apiVersion: v1
kind: Pod
metadata: {name: journal-v1, namespace: payments, labels: {app: journal, version: v1}}
spec:
  serviceAccountName: journal
  containers: [{name: journal, image: echo, args: [-tcp=9001]}]
status: {phase: Running, podIP: 10.10.0.51, podIPs: [{ip: 10.10.0.51}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: ledger, namespace: payments, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  parentRefs: [{name: names, namespace: ingress}]
  hostnames: [ledger.lines.example.com, both.lines.example.com]
  rules: [{backendRefs: [{name: ledger, port: 9000}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: journal, namespace: payments, creationTimestamp: "2026-01-02T00:00:00Z"}
spec:
  parentRefs: [{name: names, namespace: ingress}]
  hostnames: [both.lines.example.com, "*.journal.lines.example.com"]
  rules: [{backendRefs: [{name: journal, port: 9000}]}]
`

// rest is a TCPRoute for the names without a TLSRoute.
const rest = `apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: rest, namespace: payments}
spec:
  parentRefs: [{name: names, namespace: ingress}]
  rules: [{backendRefs: [{name: journal, port: 9000}]}]
`

// TestServerNames: a listener that terminates TLS forwards connections to the TLSRoute with the name, the oldest of
// several. It refuses names without a route, until a TCPRoute accepts them.
func TestServerNames(t *testing.T) {
	m := startGatewayAPI(t, map[string]string{"names.yaml": namesGateway})
	said := func(name string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		d := &tls.Dialer{Config: &tls.Config{ServerName: name + ".lines.example.com",
			InsecureSkipVerify: true}} //nolint:gosec // The certificate is another host's.
		conn, err := d.DialContext(ctx, "tcp", "10.10.0.2:9443")
		if err != nil {
			return "refused"
		}
		defer conn.Close()
		must.Succeed(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		if _, err := fmt.Fprintln(conn, "hello"); err != nil {
			return "refused"
		}
		got, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			return "refused"
		}
		return strings.TrimSpace(got)
	}
	expect := func(want map[string]string) {
		t.Helper()
		for name, answer := range want {
			m.becomes(name, answer, func() string { return said(name) })
		}
	}
	const ledger, journal = "ledger-v1 hello", "journal-v1 hello"
	expect(map[string]string{"ledger": ledger, "both": ledger, "a.journal": journal, "b.a.journal": journal, "journal": "refused",
		"other": "refused"})
	if f := m.validate(); !strings.Contains(f, "names.yaml:51:") ||
		!strings.Contains(f,
			"TLSRoute payments/ledger, which is older, has the connections for both.lines.example.com of listener lines of Gateway ingress/names") {
		t.Errorf("findings:\n%s", f)
	}
	m.write("rest.yaml", rest)
	expect(map[string]string{"ledger": ledger, "both": ledger, "a.journal": journal, "other": journal})
	m.edit("names.yaml", "2026-01-02", "2025-01-02") // now it is the older one
	expect(map[string]string{"ledger": ledger, "both": journal, "other": journal})
	m.healthy()
}
