package traffic

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
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

// TestSocketComesBack: a listener on a Unix socket disappears and returns while the outbound traffic policy changes.
// Requests follow the newest policy, in both directions, and the proxy rejects nothing.
func TestSocketComesBack(t *testing.T) {
	for _, envoy := range []string{suite.EnvoyVar, suite.OldestEnvoyVar} {
		t.Run(envoy, func(t *testing.T) { testSocketComesBack(t, envoy) })
	}
}

func testSocketComesBack(t *testing.T, envoy string) {
	const registryOnly, toProxy = "mode: REGISTRY_ONLY", "mode: ALLOW_ANY, egressProxy: {host: proxy.example, port: {number: 3128}}"
	path := filepath.Join(t.TempDir(), "x.sock")
	sidecar := "sidecar.yaml"
	m := startEgress(t,
		suite.MeshOptions{Envoy: envoy, Files: map[string]string{"proxy.yaml": socketProxyYAML, sidecar: socketYAML(path, toProxy)}})
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	answers := func(want string) {
		t.Helper()
		eventuallyText(t, "the socket", want, func() string { return textOf(client.Get("http://unknown.test/")) })
	}
	const proxied, refused, closed = "unknown.test on 8080", "502 Bad Gateway", "no answer"
	set := func(at, policy string) { m.write(sidecar, socketYAML(at, policy)) }
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
	m.healthy()
}
