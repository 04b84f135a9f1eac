package gatewaytls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	quichttp3 "github.com/quic-go/quic-go/http3"

	"github.com/istiod-lite/istiod-lite/api/http3"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// quicGateway has hosts that take HTTP/3 and some that do not, on one port.
const quicGateway = serversYAML + `  - {port: {number: %[1]d, name: one, protocol: HTTPS}, hosts: [one.example.com],
    tls: {mode: SIMPLE, credentialName: one}}
  - {port: {number: %[1]d, name: two, protocol: HTTPS}, hosts: [two.example.com], tls: {mode: SIMPLE, credentialName: two}}
  - {port: {number: %[1]d, name: mutual, protocol: HTTPS}, hosts: [mutual.example.com], tls: {mode: MUTUAL, credentialName: mutual}}
  - {port: {number: %[1]d, name: old, protocol: HTTPS}, hosts: [old.example.com],
        tls: {mode: SIMPLE, credentialName: old, maxProtocolVersion: TLSV1_2}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: all, namespace: ingress}
spec:
  hosts: ["*.example.com"]
  gateways: [gw]
  http:
  - {match: [{uri: {prefix: /teapot}}], directResponse: {status: 418}}
  - {route: [{destination: {host: web.internal, port: {number: 80}}}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: closed, namespace: ingress}
spec:
  selector: {matchLabels: {istio: ingress}}
  action: DENY
  rules: [{to: [{operation: {paths: [/closed]}}]}]
`

// quicService is the gateway's Service, with the port of the gateway for the protocols that are named.
func quicService(port int, protocols ...string) string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Service\nmetadata: {name: gateway, namespace: ingress}\nspec:\n  clusterIP: 10.96.0.9\n" +
		"  selector: {istio: ingress}\n  ports:\n")
	for _, p := range protocols {
		fmt.Fprintf(&b, "  - {name: p-%s, port: %d, protocol: %s}\n", strings.ToLower(p), port, p)
	}
	return b.String()
}

// answer is the result of a request.
type answer struct {
	status int
	proto  string
	offer  string // of HTTP/3, to clients that use another version
	body   string
	serial int64 // of the server's certificate
}

// get makes one request by HTTP/3 or by HTTP/2, on a connection of its own.
func (r *rig) get(three bool, host, path string, roots *x509.CertPool, own *tls.Certificate) (answer, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	config := &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}
	if own != nil {
		config.Certificates = []tls.Certificate{*own}
	}
	at := fmt.Sprintf("127.0.0.1:%d", r.port)
	var transport http.RoundTripper
	if three {
		t := &quichttp3.Transport{TLSClientConfig: config,
			Dial: func(ctx context.Context, _ string, c *tls.Config, q *quic.Config) (*quic.Conn, error) {
				return quic.DialAddr(ctx, at, c, q)
			}}
		defer t.Close()
		transport = t
	} else {
		t := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: config,
			DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				c := config.Clone()
				c.NextProtos = []string{"h2"}
				return (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", at)
			}}
		defer t.CloseIdleConnections()
		transport = t
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+path, nil)
	if err != nil {
		return answer{}, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: resp.StatusCode, proto: resp.Proto, offer: resp.Header.Get("alt-svc"), body: string(body)}
	if resp.TLS != nil {
		a.serial = resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	return a, nil
}

// TestHTTP3 calls a gateway by HTTP/3: hosts are told apart by their server names and show their own certificates,
// routes and policies are those of HTTP/2, Secrets are rotated, and responses by HTTP/2 offer it. Hosts whose settings
// QUIC could not keep take none, and say so. Without the port for UDP nobody is offered any.
func TestHTTP3(t *testing.T) {
	ports := freePorts(t, 2)
	issuer, clients := newCA(t), newCA(t)
	served := map[string]int64{}
	make := func(host string) map[string]string {
		c, k := issuer.issue(t, host+".example.com", soon())
		served[host] = issuer.serial
		return map[string]string{"tls.crt": c, "tls.key": k}
	}
	mutual := make("mutual")
	mutual["ca.crt"] = clients.pem()
	r := start(t, ports[0], ports[1], true, map[string]string{
		"mesh": mesh(backend(t), 9), "gateway": fmt.Sprintf(quicGateway, ports[0]), "service": quicService(ports[0], "TCP", "UDP"),
		"one": secret("one", make("one")), "two": secret("two", make("two")), "mutual": secret("mutual", mutual),
		"old": secret("old", make("old")),
	}, http3.Variable+"=true")
	friend := clients.client(t, "client")
	offer := fmt.Sprintf(`h3=":%d"; ma=86400`, ports[0])
	becomes := func(three bool, host, path string, own *tls.Certificate, want answer) {
		t.Helper()
		var got answer
		var err error
		defer func() {
			if t.Failed() {
				t.Logf("HTTP/3 %t %s%s: %+v, %v", three, host, path, got, err)
			}
		}()
		suite.Eventually(t, fmt.Sprintf("by HTTP/3 %t, %s%s is answered as %+v", three, host, path, want), func() bool {
			got, err = r.get(three, host+".example.com", path, issuer.pool(), own)
			return err == nil && got == want
		})
	}
	for _, host := range []string{"one", "two"} {
		becomes(true, host, "/", nil, answer{200, "HTTP/3.0", offer, "hello", served[host]})
		becomes(false, host, "/", nil, answer{200, "HTTP/2.0", offer, "hello", served[host]})
	}
	becomes(true, "one", "/teapot", nil, answer{418, "HTTP/3.0", offer, "", served["one"]})
	becomes(true, "one", "/closed", nil, answer{403, "HTTP/3.0", offer, "RBAC: access denied", served["one"]})
	becomes(false, "mutual", "/", friend, answer{200, "HTTP/2.0", "", "hello", served["mutual"]})
	becomes(false, "old", "/", nil, answer{200, "HTTP/2.0", "", "hello", served["old"]})
	for host, own := range map[string]*tls.Certificate{"mutual": friend, "old": nil, "nobody": nil} {
		if a, err := r.get(true, host+".example.com", "/", issuer.pool(), own); err == nil {
			t.Errorf("%s is served by HTTP/3: %+v", host, a)
		}
	}
	suite.Eventually(t, "what takes no HTTP/3 is a finding", func() bool {
		return r.hasFinding("Gateway ingress/gw", "spec.servers[2].tls.mode", "takes no HTTP/3") &&
			r.hasFinding("Gateway ingress/gw", "spec.servers[3].tls.maxProtocolVersion", "takes no HTTP/3")
	})

	r.write("one", secret("one", make("one")))
	becomes(true, "one", "/", nil, answer{200, "HTTP/3.0", offer, "hello", served["one"]})

	r.write("service", quicService(ports[0], "TCP"))
	becomes(false, "one", "/", nil, answer{200, "HTTP/2.0", "", "hello", served["one"]})
	suite.Eventually(t, "nobody takes HTTP/3", func() bool {
		_, err := r.get(true, "one.example.com", "/", issuer.pool(), nil)
		return err != nil
	})
	suite.Eventually(t, "the missing port is a finding", func() bool {
		return r.hasFinding("Gateway ingress/gw", "spec.servers[0].port.number", fmt.Sprintf("has port %d for UDP", ports[0]))
	})
	r.write("service", quicService(ports[0], "UDP", "TCP"))
	becomes(true, "two", "/", nil, answer{200, "HTTP/3.0", offer, "hello", served["two"]})

	stats, err := r.gateway.Stats(t.Context(), `update_rejected$`)
	must.Succeed(t, err)
	for name, n := range stats {
		if n > 0 {
			t.Errorf("%s: %d", name, n)
		}
	}
}
