package mtls

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// peerYAML has a pod whose address a proxy of Istio's build uses.
var peerYAML = suite.ServiceYAML("peer", "a", "10.96.0.20", "{name: http, port: 80, targetPort: 8080}",
	"{name: tcp, port: 90, targetPort: 9090}", "{name: any, port: 100, targetPort: 8081}") +
	suite.PodYAML("peer", "a", "10.10.0.14", "", suite.OwnAgent)

// What proxies of Istio's build offer and accept in their handshakes. Whoever agrees on peerExchange writes metadata
// before the bytes of the application.
const peerExchange = "istio-peer-exchange"

var (
	istioHTTP   = []string{"istio-http/1.1", "istio", "http/1.1"}
	istioTCP    = []string{peerExchange, "istio"}
	istioServer = []string{peerExchange, "h2", "http/1.1"}
)

// TestStockBesideIstios has a stock Envoy serve, and call, proxies of Istio's build: HTTP is known for HTTP, and
// nothing but the application's bytes reaches the application.
func TestStockBesideIstios(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	m := start(ctx, t, meshYAML(ports...)+peerYAML)
	for _, p := range ports {
		t.Run("serves "+p.name, func(t *testing.T) {
			offered := istioTCP
			if p.http {
				offered = istioHTTP
			}
			secure := identity(t, m, "client")
			secure.NextProtos, secure.InsecureSkipVerify = offered, true //nolint:gosec // the protocols are what is tried
			secure.VerifyConnection = func(c tls.ConnectionState) error {
				if c.NegotiatedProtocol == peerExchange {
					return fmt.Errorf("a stock Envoy agreed on %s", peerExchange)
				}
				return nil
			}
			if err := call(ctx, m.World.Pod("plain").Location, net.JoinHostPort("10.10.0.11", strconv.Itoa(p.pod)), p, secure); err != nil {
				t.Error(err)
			}
		})
		t.Run("calls "+p.name, func(t *testing.T) {
			offers := serve(t, m, p.pod, p.http)
			suite.Eventually(t, "an answer", func() bool {
				return call(ctx, m.World.Pod("client").Location, net.JoinHostPort("10.96.0.20", strconv.Itoa(p.service)), p, nil) == nil
			})
			want := map[string][]string{"HTTP": istioHTTP, "TCP": istioTCP[1:], "detected HTTP": istioHTTP[:1]}[p.name]
			if got := <-offers; !slices.Equal(got, want) {
				t.Errorf("a stock Envoy offers %q, want %q", got, want)
			}
		})
	}
}

// serve accepts calls at the peer's address, and returns the protocols that each client offers.
func serve(t *testing.T, m mesh, port int, isHTTP bool) <-chan []string {
	t.Helper()
	offers := make(chan []string, 100)
	secure := identity(t, m, "peer")
	secure.NextProtos, secure.ClientAuth = istioServer, tls.RequireAndVerifyClientCert
	secure.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		select {
		case offers <- hello.SupportedProtos:
		default:
		}
		if slices.ContainsFunc(hello.SupportedProtos, func(p string) bool { return slices.Contains(istioServer, p) }) {
			return nil, nil
		}
		none := secure.Clone() // an Envoy continues without a protocol
		none.NextProtos = nil
		return none, nil
	}
	l, err := m.World.Pod("peer").Location.Listen(net.JoinHostPort("10.10.0.14", strconv.Itoa(port)))
	must.Succeed(t, err)
	l = tls.NewListener(l, secure)
	t.Cleanup(func() { _ = l.Close() })
	if isHTTP {
		go func() { _ = http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) }()
		return offers
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil && line == "hello\n" {
					_, _ = fmt.Fprint(conn, line)
				}
			}()
		}
	}()
	return offers
}

// identity returns the certificate of a service account of the mesh, and trusts the mesh's CA.
func identity(t *testing.T, m mesh, account string) *tls.Config {
	t.Helper()
	chain, key, roots, err := m.Issuer.Issue(t.Context(), "a", account)
	must.Succeed(t, err)
	own, err := tls.X509KeyPair(chain, key)
	must.Succeed(t, err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) {
		t.Fatal("no roots")
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool, ClientCAs: pool, MinVersion: tls.VersionTLS12}
}
