package gatewaytls

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// settings has a host for each setting of servers, and a server that sends clients to https.
const settings = serversYAML + `  - {port: {number: %[1]d, name: new, protocol: HTTPS}, hosts: [new.example.com],
    tls: {mode: SIMPLE, credentialName: new, minProtocolVersion: TLSV1_3}}
  - {port: {number: %[1]d, name: old, protocol: HTTPS}, hosts: [old.example.com],
        tls: {mode: SIMPLE, credentialName: old, maxProtocolVersion: TLSV1_2, cipherSuites: [ECDHE-ECDSA-AES256-GCM-SHA384]}}
  - {port: {number: %[1]d, name: both, protocol: HTTPS}, hosts: [both.example.com],
        tls: {mode: SIMPLE, credentialNames: [both, both-rsa], maxProtocolVersion: TLSV1_2}}
  - {port: {number: %[1]d, name: pinned, protocol: HTTPS}, hosts: [pinned.example.com],
        tls: {mode: MUTUAL, credentialName: pinned, verifyCertificateHash: ["%[3]s"]}}
  - {port: {number: %[1]d, name: keyed, protocol: HTTPS}, hosts: [keyed.example.com],
        tls: {mode: MUTUAL, credentialName: keyed, verifyCertificateSpki: ["%[6]s"]}}
  - {port: {number: %[1]d, name: named, protocol: HTTPS}, hosts: [named.example.com],
        tls: {mode: MUTUAL, credentialName: named, subjectAltNames: [friend]}}
  - {port: {number: %[1]d, name: files, protocol: HTTPS}, hosts: [files.example.com],
        tls: {mode: SIMPLE, maxProtocolVersion: TLSV1_2, tlsCertificates: [{serverCertificate: %[4]s/ec.pem, privateKey: %[4]s/ec.key},
            {serverCertificate: %[4]s/rsa.pem, privateKey: %[4]s/rsa.key}]}}
  - {port: {number: %[1]d, name: revoked, protocol: HTTPS}, hosts: [revoked.example.com], tls: {mode: MUTUAL, credentialName: revoked}}
  - {port: {number: %[1]d, name: list, protocol: HTTPS}, hosts: [list.example.com],
        tls: {mode: MUTUAL, serverCertificate: %[4]s/list.pem, privateKey: %[4]s/list.key, caCertificates: %[4]s/ca.pem,
            caCrl: %[4]s/crl.pem}}
  - {port: {number: %[5]d, name: bound, protocol: HTTP}, hosts: [open.example.com], bind: 127.0.0.3}
  - {port: {number: %[2]d, name: plain, protocol: HTTP}, hosts: [new.example.com], tls: {httpsRedirect: true}}
  - {port: {number: %[2]d, name: open, protocol: HTTP}, hosts: [open.example.com]}
` + routesYAML

// TestSettings has clients that keep to what a server asks for, and some that do not: versions and cipher suites, two
// certificates of one host, of Secrets and of files, clients' certificates by hash, by key, by name and by lists of
// those that are revoked, plaintext that is sent to https, and the one address of a server.
func TestSettings(t *testing.T) {
	ports := freePorts(t, 4)
	issuer, clients := newCA(t), newCA(t)
	served := map[string]int64{}
	make := func(host string) map[string]string {
		c, k := issuer.issue(t, host+".example.com", soon())
		served[host] = issuer.serial
		return map[string]string{"tls.crt": c, "tls.key": k, "ca.crt": clients.pem()}
	}
	friend, stranger := clients.client(t, "friend"), clients.client(t, "stranger")
	crl := clients.revoke(t, clients.serial) // the stranger
	dir := t.TempDir()
	inFiles := func(name string, data map[string]string) int64 {
		for end, text := range map[string]string{".pem": data["tls.crt"], ".key": data["tls.key"]} {
			must.Succeed(t, os.WriteFile(filepath.Join(dir, name+end), []byte(text), 0o600))
		}
		return issuer.serial
	}
	ecFile, rsaFile := inFiles("ec", make("files")), inFiles("rsa", rsaCredential(t, issuer, "files.example.com"))
	served["list"] = inFiles("list", make("list"))
	inFiles("ca", map[string]string{"tls.crt": clients.pem()})
	inFiles("crl", map[string]string{"tls.crt": crl})
	hash, key := sha256.Sum256(friend.Certificate[0]), sha256.Sum256(friend.Leaf.RawSubjectPublicKeyInfo)
	files := map[string]string{
		"mesh": mesh(backend(t), 9), "gateway": fmt.Sprintf(settings, ports[0], ports[2], hex.EncodeToString(hash[:]), dir, ports[3],
			base64.StdEncoding.EncodeToString(key[:])),
		"both-rsa": secret("both-rsa", rsaCredential(t, issuer, "both.example.com")),
	}
	rsaSerial := issuer.serial
	for _, host := range []string{"new", "old", "both", "pinned", "named", "keyed"} {
		files[host] = secret(host, make(host))
	}
	withList := make("revoked")
	withList["ca.crl"] = crl
	files["revoked"] = secret("revoked", withList)
	r := start(t, ports[0], ports[1], true, files)

	handshake := func(host string, own *tls.Certificate, c *tls.Config) (tls.ConnectionState, error) {
		c.RootCAs, c.ServerName = issuer.pool(), host+".example.com"
		if own != nil {
			c.Certificates = []tls.Certificate{*own}
		}
		return r.callWith(c)
	}
	for host, own := range map[string]*tls.Certificate{"new": nil, "old": nil, "both": nil, "pinned": friend, "named": friend, "keyed": friend,
		"files": nil, "revoked": friend, "list": friend} {
		suite.Eventually(t, host+" is served", func() bool {
			_, err := handshake(host, own, &tls.Config{MinVersion: tls.VersionTLS12})
			return err == nil
		})
	}
	const ecdsa256, ecdsa128, rsa128 = tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
	twelve := func(suites ...uint16) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, CipherSuites: suites}
	}
	for _, c := range []struct {
		name, host string
		own        *tls.Certificate
		config     *tls.Config
		serial     int64 // 0 means that it is refused
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
		{"a client by key", "keyed", friend, twelve(), served["keyed"], tls.VersionTLS12},
		{"another client than the key's", "keyed", stranger, twelve(), 0, 0},
		{"a client by name", "named", friend, twelve(), served["named"], tls.VersionTLS12},
		{"a client of another name", "named", stranger, twelve(), 0, 0},
		{"the certificate of an elliptic curve of a file", "files", nil, twelve(ecdsa128), ecFile, tls.VersionTLS12},
		{"the certificate of RSA of a file", "files", nil, twelve(rsa128), rsaFile, tls.VersionTLS12},
		{"a client that is not revoked", "revoked", friend, twelve(), served["revoked"], tls.VersionTLS12},
		{"a client that is revoked", "revoked", stranger, twelve(), 0, 0},
		{"a client that is not revoked by a file", "list", friend, twelve(), served["list"], tls.VersionTLS12},
		{"a client that is revoked by a file", "list", stranger, twelve(), 0, 0},
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
			status, location := plaintext(t, fmt.Sprint("127.0.0.1:", ports[2]), host+".example.com")
			return fmt.Sprintf("%d %s", status, location) == want
		})
	}
	suite.Eventually(t, "an address alone", func() bool {
		status, _ := plaintext(t, fmt.Sprint("127.0.0.3:", ports[3]), "open.example.com")
		return status == http.StatusOK
	})
	if status, _ := plaintext(t, fmt.Sprint("127.0.0.1:", ports[3]), "open.example.com"); status != 0 {
		t.Errorf("another address than the server's answers %d", status)
	}
}

// plaintext makes a request without TLS, and returns the status and where it sends the client.
func plaintext(t *testing.T, address, host string) (status int, location string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/a?b=c", nil)
	must.Succeed(t, err)
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
	must.Succeed(t, err)
	certificate, key := c.sign(t, private, host, soon())
	return map[string]string{"tls.crt": certificate, "tls.key": key}
}
