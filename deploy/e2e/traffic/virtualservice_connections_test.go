package traffic

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// connectionsYAML has services of TCP and TLS outside the mesh, whose endpoints are both servers, and their routes.
const connectionsYAML = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: tcp, namespace: a}
spec:
  hosts: [tcp.example.com]
  addresses: [10.97.0.1, 10.97.0.2, 10.97.1.1]
  ports: [{number: 90, name: tcp, protocol: TCP, targetPort: 9090}, {number: 91, name: tcp-other, protocol: TCP, targetPort: 9090}]
  resolution: STATIC
  endpoints: [{address: 10.10.0.21, labels: {version: v1}}, {address: 10.10.0.22, labels: {version: v2}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: tls, namespace: a}
spec:
  hosts: [a.example.com, b.example.com, "*.wild.example.com"]
  addresses: [10.97.0.3, 10.97.0.4]
  ports: [{number: 443, name: tls, protocol: TLS, targetPort: 8443}]
  resolution: STATIC
  endpoints: [{address: 10.10.0.21, labels: {version: v1}}, {address: 10.10.0.22, labels: {version: v2}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: tcp, namespace: a}
spec: {host: tcp.example.com, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: tls, namespace: a}
spec: {host: a.example.com, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: tcp, namespace: a}
spec:
  hosts: [tcp.example.com]
  tcp:
  - match: [{port: 90, destinationSubnets: [10.97.0.2/32, 10.97.1.0/24]}]
    route: [{destination: {host: tcp.example.com, port: {number: 90}, subset: v2}}]
  - match: [{port: 91, sourceLabels: {tier: front}}]
    route: [{destination: {host: tcp.example.com, port: {number: 91}, subset: v2}}]
  - route: [{destination: {host: tcp.example.com, port: {number: 90}, subset: v1}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: tls, namespace: a}
spec:
  hosts: [a.example.com, b.example.com, "*.wild.example.com"]
  tls:
  - match: [{sniHosts: [a.example.com], sourceLabels: {tier: front}}]
    route: [{destination: {host: a.example.com, subset: v2}}]
  - match: [{sniHosts: [a.example.com]}]
    route: [{destination: {host: a.example.com, subset: v1}}]
  - match: [{sniHosts: [b.example.com], destinationSubnets: [10.97.0.4/32]}]
    route: [{destination: {host: a.example.com, subset: v2}}]
  - match: [{sniHosts: [b.example.com, one.wild.example.com]}]
    route: [{destination: {host: a.example.com, subset: v1}}]
  - match: [{sniHosts: ["*.wild.example.com"]}]
    route: [{destination: {host: a.example.com, subset: v2}}]
`

// TestConnectionRoutes: connections are routed by port, address, server name and the labels of the client.
func TestConnectionRoutes(t *testing.T) {
	m := startVirtualService(t, connectionsYAML)
	for _, name := range []string{"one", "two"} {
		m.accept(name, "0.0.0.0", 9090, func(c net.Conn) { _, _ = io.WriteString(c, name) })
		secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
		ended := make(chan struct{})
		suite.Serve(t, m.Pod(name), 8443, func(l net.Listener) error {
			_ = secure.Listener.Close()
			secure.Listener = l
			secure.StartTLS()
			<-ended
			return nil
		}, func() { secure.Close(); close(ended) })
	}
	for _, x := range []struct {
		pod, address, name, server string // without a name it is TCP
	}{
		{"client", "10.97.0.1:90", "", "one"},
		{"client", "10.97.0.2:90", "", "two"},
		{"client", "10.97.1.1:90", "", "two"},
		{"other", "10.97.0.2:90", "", "two"},
		{"client", "10.97.0.1:91", "", "two"},
		{"other", "10.97.0.1:91", "", "one"},
		{"client", "10.97.0.3:443", "a.example.com", "two"},
		{"other", "10.97.0.3:443", "a.example.com", "one"},
		{"client", "10.97.0.3:443", "b.example.com", "one"},
		{"client", "10.97.0.4:443", "b.example.com", "two"},
		{"client", "10.97.0.3:443", "one.wild.example.com", "one"},
		{"client", "10.97.0.3:443", "two.wild.example.com", "two"},
	} {
		suite.Eventually(t, x.pod+" to "+x.address+" "+x.name+": "+x.server, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if x.name == "" {
				c, err := m.dial(x.pod, x.address)
				if err != nil {
					return false
				}
				defer c.Close()
				got, _ := io.ReadAll(c)
				return string(got) == x.server
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+x.address, nil)
			must.Succeed(t, err)
			resp, err := (&http.Transport{
				DisableKeepAlives: true, DialContext: m.Pod(x.pod).Location.DialContext,
				TLSClientConfig: &tls.Config{ServerName: x.name, InsecureSkipVerify: true}, //nolint:gosec // who answers is what counts
			}).RoundTrip(req)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			got, _ := io.ReadAll(resp.Body)
			return string(got) == x.server
		})
	}
}
