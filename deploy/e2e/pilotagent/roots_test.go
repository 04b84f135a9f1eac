package pilotagent

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// testFurtherRoots writes another root into the mesh configuration. Agents add it to the roots of their Envoys, on the
// streams that are open, so that a server lets in who has a certificate of that root.
func (m *mesh) testFurtherRoots(t *testing.T) {
	root, err := pki.NewSelfSigned("another", time.Hour, time.Now())
	must.Succeed(t, err)
	key, err := pki.GenerateKey()
	must.Succeed(t, err)
	der, _, err := root.Sign(pki.Leaf{URI: "spiffe://cluster.local/ns/b/sa/caller", Key: key.Public(), TTL: time.Hour}, time.Now())
	must.Succeed(t, err)
	call := func() error {
		conn, err := m.World.Pod("caller").Location.DialContext(t.Context(), "tcp", "10.10.0.21:8443")
		if err != nil {
			return err
		}
		defer conn.Close()
		secure := tls.Client(conn, &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"istio"},
			InsecureSkipVerify: true, //nolint:gosec // whether the server takes this client is what is tried
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server.b.svc.cluster.local/", nil)
		if err != nil {
			return err
		}
		if err := errors.Join(secure.SetDeadline(time.Now().Add(requestTimeout)), req.Write(secure)); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(secure), req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	}
	ended := func() (counters string) {
		_, text := m.ask(t, "first", 15020, "/stats/prometheus")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "istio_agent_") && strings.Contains(line, "_connection_terminations") {
				counters += line
			}
		}
		return counters
	}
	if err := call(); err == nil {
		t.Fatal("a root that nobody wrote down counts")
	}
	before := ended()
	suite.Write(t, m.Config, "caCertificates:\n- pem: |\n    "+
		strings.ReplaceAll(strings.TrimSpace(string(pki.EncodeCertificates(root.Roots...))), "\n", "\n    ")+"\n")
	serial := root.Certificate.SerialNumber.Text(16)
	for _, name := range []string{"first", "gateway"} {
		suite.Eventually(t, name+" has the root", func() bool {
			_, text := m.ask(t, name, 15000, "/certs")
			return strings.Contains(text, serial)
		})
	}
	suite.Eventually(t, "the server lets in who has a certificate of the root", func() bool { return call() == nil })
	if after := ended(); after != before || strings.Count(after, "\n") != 2 {
		t.Errorf("streams to the control plane that ended: %q, and before %q", after, before)
	}
}
