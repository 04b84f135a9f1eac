package traffic

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// sidecarYAML has a server with a Sidecar, whose TLS files are in a folder. Clients call it by its address.
var sidecarYAML = suite.NamespacesYAML("istio-system", "a") + suite.PeerAuthenticationYAML("DISABLE") +
	suite.ServiceYAML("server", "a", "10.96.0.10", "{name: http, port: 80, targetPort: 8080}", "{name: http-more, port: 81, targetPort: 8082}",
		"{name: tcp, port: 90, targetPort: 9090}", "{name: https, port: 443, targetPort: 8443}") +
	suite.PodYAML("server", "a", "10.10.0.31", "", suite.Sidecar) +
	suite.PodYAML("client", "a", "10.10.0.13", "", suite.Outside) +
	`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: server, namespace: a}
spec:
  workloadSelector: {labels: {app: server}}
  inboundConnectionPool: {http: {http2MaxRequests: 2}}
  ingress:
  - {port: {number: 8080, protocol: HTTP, name: http}, defaultEndpoint: "127.0.0.1:8081"}
  - {port: {number: 8082, protocol: HTTP, name: http-more}, defaultEndpoint: "127.0.0.1:8081",
        connectionPool: {tcp: {maxConnections: 1}, http: {http1MaxPendingRequests: 1}}}
  - {port: {number: 9090, protocol: TCP, name: tcp}, defaultEndpoint: "127.0.0.1:9091", connectionPool: {tcp: {maxConnections: 1}}}
  - {port: {number: 8443, protocol: HTTPS, name: https}, defaultEndpoint: "127.0.0.1:8081",
        tls: {mode: SIMPLE, serverCertificate: DIR/server.pem, privateKey: DIR/server.key, minProtocolVersion: TLSV1_3}}
`

// TestSidecar: the settings of a Sidecar for inbound connections are in force: limits for all ports and for one port,
// and TLS.
func TestSidecar(t *testing.T) {
	dir := t.TempDir()
	roots := certificate(t, dir)
	m := destinationRuleMesh{start(t, strings.ReplaceAll(sidecarYAML, "DIR", dir), suite.MeshOptions{CA: true})}
	s, h := m.newServer("server")
	m.serve("server", "127.0.0.1", 8081, h.Serve, func() { _ = h.Close() })
	m.accept("server", "127.0.0.1", 9091, answerLine)

	t.Run("AllPorts", func(t *testing.T) { m.refuses(s, "http://10.10.0.31:8080/hold", 5, 3, true) })
	t.Run("OnePort", func(t *testing.T) { m.refuses(s, "http://10.10.0.31:8082/hold", 5, 3, true) })
	t.Run("Connections", func(t *testing.T) {
		connect := func() (net.Conn, error) {
			c, err := m.dial("client", "10.10.0.31:9090")
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = c.Close() })
			if _, err := io.WriteString(c, "hello\n"); err != nil {
				return nil, err
			}
			_, err = bufio.NewReader(c).ReadString('\n')
			return c, err
		}
		if _, err := connect(); err != nil {
			t.Fatal(err)
		}
		if _, err := connect(); err == nil {
			t.Error("a second connection is let in")
		}
	})
	t.Run("TLS", func(t *testing.T) {
		call := func(version uint16) (string, error) {
			config := &tls.Config{RootCAs: roots, ServerName: "server.example.com", MinVersion: tls.VersionTLS12, MaxVersion: version}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://10.10.0.31:8443/", nil)
			if err != nil {
				return "", err
			}
			resp, err := (&http.Transport{DisableKeepAlives: true, TLSClientConfig: config,
				DialContext: m.Pod("client").Location.DialContext}).RoundTrip(req)
			if err != nil {
				return "", err
			}
			_ = resp.Body.Close()
			return resp.Header.Get("X-Server"), nil
		}
		suite.Eventually(t, "the server is called by TLS",
			func() bool { name, err := call(tls.VersionTLS13); return err == nil && name == "server" })
		if _, err := call(tls.VersionTLS12); err == nil {
			t.Error("a client of an older TLS is let in")
		}
		if got := m.get(m.client(false), "http://10.10.0.31:8443/"); got.server != "" {
			t.Errorf("plaintext is let in: %+v", got)
		}
	})
}

// certificate writes server.pem and server.key into a folder, and returns whom a client is to trust.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"server.example.com"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must.Succeed(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(t, err)
	pool := x509.NewCertPool()
	for name, b := range map[string]*pem.Block{"server.pem": {Type: "CERTIFICATE", Bytes: der},
		"server.key": {Type: "PRIVATE KEY", Bytes: private}} {
		text := pem.EncodeToMemory(b)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", name, err))
		}
		pool.AppendCertsFromPEM(text)
	}
	return pool
}
