package pilotagent

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/armor"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// testSecureMetrics scrapes a pod from another one. The ports with mutual TLS answer clients with a certificate of the
// mesh, although the other ports of metrics serve their own pod alone.
func (m *mesh) testSecureMetrics(t *testing.T) {
	const server = "10.10.0.21"
	certs := filepath.Join(m.agents["second"].dir, "certs")
	own, err := tls.LoadX509KeyPair(filepath.Join(certs, "cert-chain.pem"), filepath.Join(certs, "key.pem"))
	must.Succeed(t, err)
	text, err := os.ReadFile(filepath.Join(certs, "root-cert.pem"))
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	must.Succeed(t, armor.AddRoots(roots, text))
	get := func(url string, shown ...tls.Certificate) (int, string) {
		config := &tls.Config{Certificates: shown, InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots}) // by its roots; it has no name of a host
			return err
		}}
		client := &http.Client{Timeout: requestTimeout, Transport: &http.Transport{
			DialContext: m.World.Pod("second").Location.DialContext, TLSClientConfig: config, DisableKeepAlives: true,
		}}
		resp, err := client.Get(url)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		must.Succeed(t, err)
		return resp.StatusCode, string(body)
	}
	for at, want := range map[string][]string{
		":15091/stats/prometheus": {"envoy_server_live"},
		":15092/stats/prometheus": {"envoy_server_live", "istio_agent_scrapes_total"},
		":15092/metrics":          {"envoy_server_live", "istio_agent_scrapes_total"},
	} {
		code, text := get("https://"+server+at, own)
		for _, name := range want {
			if code != http.StatusOK || !strings.Contains(text, name) {
				t.Errorf("%s: %d, without %s: %.200s", at, code, name, text)
			}
		}
		if code, text := get("https://" + server + at); code != 0 {
			t.Errorf("%s without a certificate: %d, %.200s", at, code, text)
		}
		if code, text := get("http://" + server + at); code != 0 {
			t.Errorf("%s without TLS: %d, %.200s", at, code, text)
		}
	}
	for _, at := range []string{":15091/metrics", ":15091/server_info", ":15092/quitquitquit"} {
		if code, text := get("https://"+server+at, own); code != http.StatusNotFound {
			t.Errorf("%s: %d, %.200s", at, code, text)
		}
	}
	for _, at := range []string{":15090/stats/prometheus", ":15020/stats/prometheus", ":15020/metrics"} {
		if code, text := get("http://" + server + at); code == http.StatusOK {
			t.Errorf("%s serves other pods: %.200s", at, text)
		}
	}
}
