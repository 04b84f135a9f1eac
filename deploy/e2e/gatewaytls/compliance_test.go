package gatewaytls

import (
	"crypto/tls"
	"fmt"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// TestCompliance has clients of a gateway under each policy. The agent asks the control plane under the same policy.
func TestCompliance(t *testing.T) {
	x25519, p256, p384 := []tls.CurveID{tls.X25519}, []tls.CurveID{tls.CurveP256}, []tls.CurveID{tls.CurveP384}
	twelve := func(curves []tls.CurveID, suites ...uint16) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, CurvePreferences: curves, CipherSuites: suites}
	}
	thirteen := func(curves []tls.CurveID) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS13, CurvePreferences: curves}
	}
	const chacha, aes = tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
	type clients map[string]struct {
		config *tls.Config
		want   string // version and curve; empty if it is refused
	}
	for _, c := range []struct {
		policy  string
		env     []string
		clients clients
	}{
		{"fips-140-2", nil, clients{
			"any": {&tls.Config{MinVersion: tls.VersionTLS12}, "TLS 1.2 CurveP256"}, "TLS 1.3": {thirteen(nil), ""},
			"X25519": {twelve(x25519), ""}, "P-384": {twelve(p384), ""}, "ChaCha20": {twelve(nil, chacha), ""},
			"AES": {twelve(nil, aes), "TLS 1.2 CurveP256"},
		}},
		// Envoy's own policy allows TLS 1.2 although the server asks for TLS 1.3, which is a finding.
		{"fips-140-3", []string{"GODEBUG=fips140=only"}, clients{
			"P-256": {thirteen(p256), "TLS 1.3 CurveP256"}, "P-384": {thirteen(p384), "TLS 1.3 CurveP384"}, "X25519": {thirteen(x25519), ""},
			"TLS 1.2": {twelve(nil, aes), "TLS 1.2 CurveP256"}, "ChaCha20": {twelve(nil, chacha), ""},
		}},
		{"pqc", nil, clients{
			"any": {&tls.Config{MinVersion: tls.VersionTLS12}, "TLS 1.3 X25519MLKEM768"}, "P-256": {thirteen(p256), ""},
			"TLS 1.2": {twelve(nil), ""},
		}},
	} {
		t.Run(c.policy, func(t *testing.T) {
			ports, issuer := freePorts(t, 2), newCA(t)
			certificate, key := issuer.issue(t, "web.example.com", soon())
			r := start(t, ports[0], ports[1], true, map[string]string{
				"mesh": mesh(backend(t), 9), "web": secret("web", map[string]string{"tls.crt": certificate, "tls.key": key}),
				"gateway": serversYAML + fmt.Sprintf(`  - {port: {number: %d, name: https, protocol: HTTPS}, hosts: [web.example.com],
    tls: {mode: SIMPLE, credentialName: web, minProtocolVersion: TLSV1_3}}
`, ports[0]) + routesYAML,
			}, append(c.env, "COMPLIANCE_POLICY="+c.policy)...)
			call := func(config *tls.Config) (string, error) {
				config = config.Clone()
				config.RootCAs, config.ServerName = issuer.pool(), "web.example.com"
				s, err := r.callWith(config)
				return tls.VersionName(s.Version) + " " + s.CurveID.String(), err
			}
			suite.Eventually(t, "the gateway serves", func() bool {
				_, err := call(&tls.Config{MinVersion: tls.VersionTLS12})
				return err == nil
			})
			for name, x := range c.clients {
				if got, err := call(x.config); (err == nil) != (x.want != "") || err == nil && got != x.want {
					t.Errorf("%s: %s, %v, want %q", name, got, err, x.want)
				}
			}
			if c.policy != "pqc" && !r.hasFinding("Gateway ingress/gw", "spec.servers[0].tls.minProtocolVersion", "no effect") {
				t.Errorf("no finding about the version that the server asks for: %v", r.findings())
			}
		})
	}
}
