package gatewaytls

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestWhy: if a Secret is missing or invalid, the command why reports what clients of a real Envoy see, for a running
// server and for its files.
func TestWhy(t *testing.T) {
	ports := freePorts(t, 3)
	issuer := newCA(t)
	server := newSecured(t, issuer, "good.internal")
	own, key := issuer.issue(t, "any.example.com", soon())
	pair := map[string]string{"tls.crt": own, "tls.key": key}
	cases := []struct {
		host, tls string
		served    bool
		says      string // the answer of why
	}{
		{"good.example.com", `mode: SIMPLE, credentialName: good`, true, ``},
		{"missing.example.com", `mode: SIMPLE, credentialName: missing`, false,
			`there is no Secret ingress/missing\n.*by Gateway ingress/gw spec.servers\[1\].tls.credentialName \(.*:\d+:\d+\)\n.*kubectl create ` +
				`secret tls missing -n ingress`},
		{"empty.example.com", `mode: SIMPLE, credentialName: empty`, false, `Secret ingress/empty .*it has none of the keys that TLS needs`},
		{"garbage.example.com", `mode: SIMPLE, credentialName: garbage`, false, `Secret ingress/garbage .*no certificate in PEM`},
		{"other.example.com", `mode: SIMPLE, credentialName: "kubernetes-gateway://other/good"`, false,
			`proxies of namespace ingress may not have what is in namespace other`},
		{"rootless.example.com", `mode: MUTUAL, credentialName: good`, false,
			`secret kubernetes://good-cacert: Secret ingress/good \(.*\) has no CA certificates`},
		{"one.example.com", `mode: SIMPLE, credentialNames: [missing, good]`, true, ``},
		{"none.example.com", `mode: SIMPLE, credentialNames: [missing, nowhere]`, false, `there is no Secret ingress/nowhere`},
	}
	text := serversYAML
	for i, c := range cases {
		text += fmt.Sprintf("  - {port: {number: %d, name: s%d, protocol: HTTPS}, hosts: [%s], tls: {%s}}\n", ports[0], i, c.host, c.tls)
	}
	text += fmt.Sprintf("  - {port: {number: %d, name: http, protocol: HTTP}, hosts: [\"*.example.org\"]}\n", ports[2])
	text += fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: gateway, namespace: ingress}
spec: {selector: {istio: ingress}, ports: [{name: https, port: %d}, {name: http, port: %d}]}
`, ports[0], ports[2])
	upstream := map[string]string{"roots.example.org": "roots", "noroots.example.org": "noroots"}
	for host, credential := range upstream {
		name := strings.TrimSuffix(host, ".example.org")
		text += fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: ingress}
spec: {hosts: [%[1]s.internal], ports: [{number: 80, name: http, protocol: HTTP, targetPort: %[2]d}], resolution: STATIC,
    endpoints: [{address: 127.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s, namespace: ingress}
spec: {host: %[1]s.internal, trafficPolicy: {tls: {mode: SIMPLE, credentialName: %[3]s, sni: good.internal}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: ingress}
spec: {hosts: [%[4]s], gateways: [gw], http: [{route: [{destination: {host: %[1]s.internal}}]}]}
`, name, server.port, credential, host)
	}
	r := start(t, ports[0], ports[1], true, map[string]string{
		"mesh": suite.NamespacesYAML("istio-system", "ingress", "other") + mesh(backend(t), 9), "gateway": text + routesYAML,
		"good": secret("good", pair), "other": strings.Replace(secret("good", pair), "namespace: ingress", "namespace: other", 1),
		"empty":   secret("empty", map[string]string{"password": "x"}),
		"garbage": secret("garbage", map[string]string{"tls.crt": "x", "tls.key": "x"}),
		"roots":   secret("roots", map[string]string{"ca.crt": issuer.pem()}),
	})
	// asks returns the answer of the command for a request to a host, and whether the request reaches an application.
	asks := func(target string, where ...string) (string, bool) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), programs.Pilot, append([]string{"why", "gateway.ingress", target}, where...)...).
			CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 79) {
			t.Fatalf("%s %v: %v\n%s", target, where, err, out)
		}
		return string(out), err == nil
	}
	agrees := func(target, says string, served bool) {
		t.Helper()
		for _, where := range [][]string{{"--configDir", r.dir}, {"--address", r.pilot.Monitoring}, {"--address", r.pilot.Monitoring, "--sent"}} {
			out, reaches := asks(target, where...)
			if reaches != served || says != "" && !regexp.MustCompile(says).MatchString(out) {
				t.Errorf("%s: Envoy serves it: %t. %v says:\n%s", target, served, where, out)
			}
		}
	}
	reached := func(host string) error {
		_, err := r.callWith(&tls.Config{ServerName: host, MinVersion: tls.VersionTLS12,
			InsecureSkipVerify: true}) //nolint:gosec // The certificate does not matter here.
		return err
	}
	suite.Eventually(t, "the gateway serves what it has a certificate for", func() bool { return reached("good.example.com") == nil })
	for _, c := range cases {
		if c.served {
			suite.Eventually(t, c.host+" is served", func() bool { return reached(c.host) == nil })
		} else if err := reached(c.host); err == nil {
			t.Errorf("%s is served", c.host)
		}
		agrees(fmt.Sprintf("https://%s:%d", c.host, ports[0]), c.says, c.served)
	}
	get := func(host string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", ports[2]), nil)
		must.Succeed(t, err)
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	suite.Eventually(t, "a server is called by TLS", func() bool { return get("roots.example.org") == http.StatusOK })
	suite.Eventually(t, "no server is called by TLS without CA certificates",
		func() bool { return get("noroots.example.org") == http.StatusServiceUnavailable })
	agrees(fmt.Sprintf("http://roots.example.org:%d", ports[2]), "", true)
	agrees(fmt.Sprintf("http://noroots.example.org:%d", ports[2]),
		`there is no Secret ingress/noroots\n.*by DestinationRule ingress/noroots spec.trafficPolicy.tls.credentialName `+
			`\(.*\)\n(.|\n)*answered with status 503: TLS to cluster .* fails`, false)
}
