package gatewaytls

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// secured is a server whose certificate is one that a CA issues for a host. It asks for certificates of clients, and
// answers with the name that it was called by and the client's.
type secured struct {
	port   int
	serial int64        // of the certificate
	turned atomic.Int32 // how many clients turned the certificate down
}

// Write counts the server's log lines about clients.
func (s *secured) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "remote error: tls: ") {
		s.turned.Add(1)
	}
	return len(line), nil
}

func newSecured(t *testing.T, c *ca, host string) *secured {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "nobody"
		if list := r.TLS.PeerCertificates; len(list) > 0 {
			name = list[0].Subject.CommonName
		}
		fmt.Fprintf(w, "%s by %s", r.TLS.ServerName, name)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*c.client(t, host)}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}
	of := &secured{}
	s.Config.ErrorLog = log.New(of, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	of.port, of.serial = s.Listener.Addr().(*net.TCPAddr).Port, c.serial
	return of
}

// TestUpstream: a DestinationRule sets the TLS of a gateway's calls: the trusted roots, the server name, the client
// certificate, and revoked certificates.
func TestUpstream(t *testing.T) {
	ports := freePorts(t, 2)
	issuer, clients, strangers := newCA(t), newCA(t), newCA(t)
	good, bad := newSecured(t, issuer, "good.internal"), newSecured(t, issuer, "bad.internal")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	crl := issuer.revoke(t, bad.serial)
	own, key := clients.issue(t, "gateway", soon())
	roots := file("roots.pem", issuer.pem())
	files := map[string]string{
		"roots":     secret("roots", map[string]string{"ca.crt": issuer.pem()}),
		"strangers": secret("strangers", map[string]string{"ca.crt": strangers.pem()}),
		"crl":       secret("crl", map[string]string{"ca.crt": issuer.pem(), "ca.crl": crl}),
		"mutual":    secret("mutual", map[string]string{"tls.crt": own, "tls.key": key, "ca.crt": issuer.pem()}),
	}
	const refused = "refused"
	cases := []struct {
		name, tls string
		server    *secured
		says      string // the end of the answer
	}{
		{"whoever it is", `mode: SIMPLE, insecureSkipVerify: true, sni: any.internal`, good, "any.internal by nobody"},
		{"the roots of a Secret", `mode: SIMPLE, credentialName: roots, sni: good.internal`, good, "good.internal by nobody"},
		{"other roots of a Secret", `mode: SIMPLE, credentialName: strangers, sni: good.internal`, good, refused},
		{"roots in a file", `mode: SIMPLE, caCertificates: ` + roots + `, sni: good.internal`, good, "good.internal by nobody"},
		{"no roots but the system's", `mode: SIMPLE, sni: good.internal`, good, refused},
		{"the name", `mode: SIMPLE, credentialName: roots, subjectAltNames: [other.internal, good.internal]`, good, " by nobody"},
		{"another name", `mode: SIMPLE, credentialName: roots, subjectAltNames: [other.internal]`, good, refused},
		{"the name that the request is for", `mode: SIMPLE, credentialName: roots`, good, refused},
		{"a certificate that is not revoked", `mode: SIMPLE, subjectAltNames: [good.internal, bad.internal], caCertificates: ` + roots +
			`, caCrl: ` + file("crl.pem", crl), good, " by nobody"},
		{"a certificate that is revoked", `mode: SIMPLE, subjectAltNames: [good.internal, bad.internal], caCertificates: ` + roots + `, caCrl: ` +
			file("again.pem", crl), bad, refused},
		{"one that is not revoked by a Secret", `mode: SIMPLE, credentialName: crl, subjectAltNames: [good.internal, bad.internal]`, good,
			" by nobody"},
		{"one that is revoked by a Secret", `mode: SIMPLE, credentialName: crl, subjectAltNames: [good.internal, bad.internal]`, bad, refused},
		{"where revocation is not asked", `mode: SIMPLE, credentialName: roots, subjectAltNames: [good.internal, bad.internal]`, bad,
			" by nobody"},
		{"its own certificate of a Secret", `mode: MUTUAL, credentialName: mutual, sni: good.internal`, good, "good.internal by gateway"},
		{"its own certificate of files", `mode: MUTUAL, sni: good.internal, caCertificates: ` + roots + `, clientCertificate: ` +
			file("own.pem", own) + `, privateKey: ` + file("key.pem", key), good, " by gateway"},
	}
	text := serversYAML + fmt.Sprintf("  - {port: {number: %d, name: http, protocol: HTTP}, hosts: [\"*\"]}\n", ports[0])
	for i, c := range cases {
		text += fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s%[1]d, namespace: ingress}
spec: {hosts: [s%[1]d.internal], ports: [{number: 80, name: http, protocol: HTTP, targetPort: %[2]d}], resolution: STATIC,
    endpoints: [{address: 127.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: s%[1]d, namespace: ingress}
spec: {host: s%[1]d.internal, trafficPolicy: {tls: {%[3]s}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: s%[1]d, namespace: ingress}
spec: {hosts: [s%[1]d.example.com], gateways: [gw], http: [{route: [{destination: {host: s%[1]d.internal}}], retries: {attempts: 0}}]}
`, i, c.server.port, c.tls)
	}
	files["mesh"], files["gateway"] = mesh(9, 9), text
	start(t, ports[0], ports[1], true, files)
	for i, c := range cases {
		suite.Eventually(t, c.name+": "+c.says, func() bool {
			turned := c.server.turned.Load()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", ports[0]), nil)
			must.Succeed(t, err)
			req.Host = fmt.Sprintf("s%d.example.com", i)
			resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			said, err := io.ReadAll(resp.Body)
			if c.says == refused {
				return err == nil && resp.StatusCode == http.StatusServiceUnavailable && c.server.turned.Load() > turned
			}
			return err == nil && resp.StatusCode == http.StatusOK && strings.HasSuffix(string(said), c.says)
		})
	}
}
