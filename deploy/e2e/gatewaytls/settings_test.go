package gatewaytls

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net/http"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// settings has a host for each setting of servers, and a server that sends clients to https.
const settings = serversYAML + `  - {port: {number: %[1]d, name: new, protocol: HTTPS}, hosts: [new.example.com], tls: {mode: SIMPLE, credentialName: new, minProtocolVersion: TLSV1_3}}
  - {port: {number: %[1]d, name: old, protocol: HTTPS}, hosts: [old.example.com], tls: {mode: SIMPLE, credentialName: old, maxProtocolVersion: TLSV1_2, cipherSuites: [ECDHE-ECDSA-AES256-GCM-SHA384]}}
  - {port: {number: %[1]d, name: both, protocol: HTTPS}, hosts: [both.example.com], tls: {mode: SIMPLE, credentialNames: [both, both-rsa], maxProtocolVersion: TLSV1_2}}
  - {port: {number: %[1]d, name: pinned, protocol: HTTPS}, hosts: [pinned.example.com], tls: {mode: MUTUAL, credentialName: pinned, verifyCertificateHash: ["%[3]s"]}}
  - {port: {number: %[1]d, name: named, protocol: HTTPS}, hosts: [named.example.com], tls: {mode: MUTUAL, credentialName: named, subjectAltNames: [friend]}}
  - {port: {number: %[2]d, name: plain, protocol: HTTP}, hosts: [new.example.com], tls: {httpsRedirect: true}}
  - {port: {number: %[2]d, name: open, protocol: HTTP}, hosts: [open.example.com]}
` + routesYAML

// TestSettings has clients that keep to what a server asks for, and some that do not: versions and cipher suites, two
// certificates of one host, clients' certificates by hash and by name, and plaintext that is sent to https.
func TestSettings(t *testing.T) {
	ports := freePorts(t, 3)
	issuer, clients := newCA(t), newCA(t)
	served := map[string]int64{}
	make := func(host string) map[string]string {
		c, k := issuer.issue(t, host+".example.com", soon())
		served[host] = issuer.serial
		return map[string]string{"tls.crt": c, "tls.key": k, "ca.crt": clients.pem()}
	}
	friend, stranger := clients.client(t, "friend"), clients.client(t, "stranger")
	hash := sha256.Sum256(friend.Certificate[0])
	files := map[string]string{
		"mesh": mesh(backend(t), 9), "gateway": fmt.Sprintf(settings, ports[0], ports[2], hex.EncodeToString(hash[:])),
		"both-rsa": secret("both-rsa", rsaCredential(t, issuer, "both.example.com")),
	}
	rsaSerial := issuer.serial
	for _, host := range []string{"new", "old", "both", "pinned", "named"} {
		files[host] = secret(host, make(host))
	}
	r := start(t, ports[0], ports[1], true, files)

	handshake := func(host string, own *tls.Certificate, c *tls.Config) (tls.ConnectionState, error) {
		c.RootCAs, c.ServerName = issuer.pool(), host+".example.com"
		if own != nil {
			c.Certificates = []tls.Certificate{*own}
		}
		return r.callWith(c)
	}
	for host, own := range map[string]*tls.Certificate{"new": nil, "old": nil, "both": nil, "pinned": friend, "named": friend} {
		suite.Eventually(t, host+" is served", func() bool {
			_, err := handshake(host, own, &tls.Config{MinVersion: tls.VersionTLS12})
			return err == nil
		})
	}
	const ecdsa256, ecdsa128, rsa128 = tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
	twelve := func(suites ...uint16) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, CipherSuites: suites}
	}
	for _, c := range []struct {
		name, host string
		own        *tls.Certificate
		config     *tls.Config
		serial     int64 // 0: it is refused
		version    uint16
	}{
		{"TLS 1.2 where 1.3 is least", "new", nil, twelve(), 0, 0},
		{"TLS 1.3 where it is least", "new", nil, &tls.Config{MinVersion: tls.VersionTLS13}, served["new"], tls.VersionTLS13},
		{"TLS 1.3 where 1.2 is most", "old", nil, &tls.Config{MinVersion: tls.VersionTLS13}, 0, 0},
		{"the cipher suite", "old", nil, twelve(ecdsa256), served["old"], tls.VersionTLS12},
		{"another cipher suite", "old", nil, twelve(ecdsa128), 0, 0},
		{"the certificate of an elliptic curve", "both", nil, twelve(ecdsa128), served["both"], tls.VersionTLS12},
		{"the certificate of RSA", "both", nil, twelve(rsa128), rsaSerial, tls.VersionTLS12},
		{"a client by hash", "pinned", friend, twelve(), served["pinned"], tls.VersionTLS12},
		{"another client of the same CA", "pinned", stranger, twelve(), 0, 0},
		{"a client by name", "named", friend, twelve(), served["named"], tls.VersionTLS12},
		{"a client of another name", "named", stranger, twelve(), 0, 0},
	} {
		s, err := handshake(c.host, c.own, c.config)
		switch {
		case c.serial == 0 && err == nil:
			t.Errorf("%s: it is served", c.name)
		case c.serial != 0 && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.serial != 0 && (s.Version != c.version || s.PeerCertificates[0].SerialNumber.Int64() != c.serial):
			t.Errorf("%s: version %x, certificate %v, not %x and %d", c.name, s.Version, s.PeerCertificates[0].SerialNumber, c.version, c.serial)
		}
	}
	for host, want := range map[string]string{"new": "301 https://new.example.com/a?b=c", "open": "200 "} {
		suite.Eventually(t, host+" over plaintext: "+want, func() bool {
			status, location := plaintext(t, ports[2], host+".example.com")
			return fmt.Sprintf("%d %s", status, location) == want
		})
	}
}

// plaintext makes a request without TLS, and returns the status and where it sends the client.
func plaintext(t *testing.T, port int, host string) (status int, location string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/a?b=c", port), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("location")
}

// rsaCredential returns a certificate of RSA for a host, and its key.
func rsaCredential(t *testing.T, c *ca, host string) map[string]string {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := c.sign(t, private, host, soon())
	return map[string]string{"tls.crt": certificate, "tls.key": key}
}
