package mtls

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/load"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// everyRequestConnects has each request make a connection of its own, without the session of an earlier one. A machine
// under load may take long to connect.
const everyRequestConnects = `---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: echo, namespace: a}
spec:
  host: echo
  trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}, tcp: {connectTimeout: 60s}}}
`

// TestRootIsReplaced replaces the root of a plugged-in CA, as an operator would, while a client's Envoy makes 200
// connections a second to a server's: the next root is trusted, then it signs, then the first is trusted no more. No
// handshake fails.
func TestRootIsReplaced(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	first, next := selfSigned(t, "first"), selfSigned(t, "next")
	dir := filepath.Join(t.TempDir(), "cacerts")
	t.Setenv("ROOT_CA_DIR", dir)
	plug(t, dir, first)
	m := start(ctx, t, meshYAML(ports...)+everyRequestConnects, first.Certificate, next.Certificate)
	client := http.Client{Transport: &http.Transport{DialContext: m.World.Pod("client").Location.DialContext, MaxIdleConnsPerHost: 32}}
	traffic := load.Begin(t, load.Options{Rate: 200, Timeout: 20 * time.Second}, func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://10.96.0.10/", nil)
		if err != nil {
			return "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			reason, _ := io.ReadAll(resp.Body)
			return "", fmt.Errorf("%s: %s", resp.Status, reason)
		}
		return "echo", nil
	})
	const handshakes = "cluster.outbound|80||echo.a.svc.cluster.local;.ssl.handshake"
	for _, step := range []struct {
		name    string
		signing *pki.Bundle
		roots   []*x509.Certificate
	}{
		{"the next root is trusted", first, []*x509.Certificate{first.Certificate, next.Certificate}},
		{"the next root signs", next, []*x509.Certificate{first.Certificate, next.Certificate}},
		{"the first root is trusted no more", next, []*x509.Certificate{next.Certificate}},
	} {
		plug(t, dir, step.signing, step.roots...)
		asked := 0
		suite.Eventually(t, step.name+" by new certificates", func() bool {
			asked++ // each time in another name: how often one may ask is bounded
			chain, _, roots, err := m.Issuer.Issue(t.Context(), "a", fmt.Sprint("operator-", asked))
			if err != nil {
				return false
			}
			trusted, err := pki.ParseCertificates(roots)
			if err != nil || len(trusted) != len(step.roots) {
				return false
			}
			signed, err := pki.ParseCertificates(chain)
			return err == nil && bytes.Equal(signed[0].RawIssuer, step.signing.Certificate.RawSubject)
		})
		for _, pod := range []string{"client", "echo"} {
			p := m.World.Pod(pod).Proxy
			suite.Eventually(t, step.name+" by "+pod, func() bool {
				chain, trusted := certificates(t, p.Dir(), "cert-chain.pem"), certificates(t, p.Dir(), "root-cert.pem")
				if len(chain) == 0 || !bytes.Equal(chain[0].RawIssuer, step.signing.Certificate.RawSubject) || len(trusted) != len(step.roots) {
					return false
				}
				var want []string
				for _, c := range append(chain, step.roots...) {
					want = append(want, c.SerialNumber.Text(16))
				}
				slices.Sort(want)
				certs, err := p.Get(t.Context(), "/certs")
				return err == nil && slices.Equal(serials(certs), slices.Compact(want))
			})
		}
		before, answered := stats(t, m.World, "client", handshakes), traffic.Heard("echo")
		suite.Eventually(t, step.name+" by 200 connections", func() bool {
			return traffic.Heard("echo") >= answered+200 && stats(t, m.World, "client", handshakes) > before
		})
		if err := traffic.Err(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
	if n := stats(t, m.World, "client", handshakes); n < 600 {
		t.Errorf("only %d handshakes for %d requests", n, traffic.Heard("echo"))
	}
}

// serials returns the serial numbers of the certificates that an Envoy uses, sorted.
func serials(certs []byte) []string {
	var list []string
	for _, m := range regexp.MustCompile(`"serial_number":\s*"0*([0-9a-f]+)"`).FindAllSubmatch(certs, -1) {
		list = append(list, string(m[1]))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// certificates returns the certificates in a file of an agent, or none if it changes meanwhile.
func certificates(t *testing.T, dir, name string) []*x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "certs", name))
	if err != nil {
		return nil
	}
	list, err := pki.ParseCertificates(text)
	must.Succeed(t, err)
	return list
}

func selfSigned(t *testing.T, organization string) *pki.Bundle {
	t.Helper()
	b, err := pki.NewSelfSigned(organization, time.Hour*24*365, time.Now())
	must.Succeed(t, err)
	return b
}

// plug writes a CA and more trusted roots, as the files of the Secret cacerts.
func plug(t *testing.T, dir string, b *pki.Bundle, roots ...*x509.Certificate) {
	t.Helper()
	if len(roots) > 0 {
		var err error
		if b, err = b.WithRoots(roots, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	files, err := b.Encode()
	must.Succeed(t, err)
	must.Succeed(t, os.MkdirAll(dir, 0o755))
	for name, text := range map[string][]byte{"ca-cert.pem": files.Certificate, "ca-key.pem": files.Key, "cert-chain.pem": files.Chain,
		"root-cert.pem": files.Roots} {
		suite.Write(t, filepath.Join(dir, name), string(text))
	}
}
