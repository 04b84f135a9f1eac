package egress

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

const socketProxyYAML = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: proxy, namespace: a}
spec:
  hosts: [proxy.example]
  resolution: STATIC
  ports: [{number: 3128, name: http, protocol: HTTP, targetPort: 8080}]
  endpoints: [{address: 127.0.0.1}]
`

// socketYAML returns a Sidecar with a listener for all ports, with one on a socket unless the path is empty, and with
// an outbound traffic policy.
func socketYAML(path, policy string) string {
	listener := ""
	if path != "" {
		listener = fmt.Sprintf("\n  - {bind: \"unix://%s\", port: {number: 0, name: http, protocol: HTTP}, hosts: [\"*/*\"]}", path)
	}
	return "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: default, namespace: a}\nspec:\n" +
		"  outboundTrafficPolicy: {" + policy + "}\n  egress:" + listener + "\n  - hosts: [\"*/*\"]\n"
}

// TestSocketComesBack checks what requests get from a listener on a Unix socket that goes and comes back while the
// outbound traffic policy changes: what the newest policy says, in both directions, and the proxy rejects nothing.
func TestSocketComesBack(t *testing.T) {
	for _, envoy := range []string{suite.EnvoyVar, suite.OldestEnvoyVar} {
		t.Run(envoy, func(t *testing.T) { testSocketComesBack(t, envoy) })
	}
}

func testSocketComesBack(t *testing.T, envoy string) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	const registryOnly, toProxy = "mode: REGISTRY_ONLY", "mode: ALLOW_ANY, egressProxy: {host: proxy.example, port: {number: 3128}}"
	path := filepath.Join(t.TempDir(), "x.sock")
	sidecar := "sidecar.yaml"
	m := serve(t, suite.StartMesh(ctx, t, suite.MeshOptions{Network: network, Envoy: envoy, Files: map[string]string{
		"mesh.yaml": meshYAML, "proxy.yaml": socketProxyYAML, sidecar: socketYAML(path, toProxy),
	}}))
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	answers := func(want string) {
		t.Helper()
		got := ""
		defer func() {
			if t.Failed() {
				t.Logf("the last answer: %q", got)
			}
		}()
		suite.Eventually(t, "the socket is answered with "+want, func() bool {
			resp, err := client.Get("http://unknown.test/")
			if err != nil {
				got = "no answer"
				return got == want
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
			if got = resp.Status; err == nil && resp.StatusCode == http.StatusOK {
				got = string(text)
			}
			return got == want
		})
	}
	const proxied, refused, closed = "unknown.test on 8080", "502 Bad Gateway", "no answer"
	set := func(at, policy string) { suite.Write(t, filepath.Join(m.Dir, sidecar), socketYAML(at, policy)) }
	answers(proxied)
	for range 2 {
		set("", toProxy)
		answers(closed)
		set(path, registryOnly)
		answers(refused)
		set("", registryOnly)
		answers(closed)
		set(path, toProxy)
		answers(proxied)
	}
	if rejected := m.rejections(t); rejected != 0 {
		t.Errorf("the proxy has rejected %v responses", rejected)
	}
}

// rejections returns how many responses the caller has rejected.
func (m mesh) rejections(t *testing.T) (n int) {
	t.Helper()
	body, err := m.Pod("caller").Proxy.Get(t.Context(), "/stats?format=json&filter=update_rejected")
	if err != nil {
		t.Fatal(err)
	}
	var stats struct {
		Stats []struct {
			Name  string
			Value int
		}
	}
	if err := json.Unmarshal(body, &stats); err != nil || len(stats.Stats) == 0 {
		t.Fatalf("%v: %s", err, body)
	}
	for _, s := range stats.Stats {
		if strings.HasSuffix(s.Name, "update_rejected") {
			n += s.Value
		}
	}
	return n
}
