package credentials_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestEnvoysTakeWhatIsAccepted gives a real Envoy what is accepted of odd Secrets: it would reject one that it does not
// take together with others. Those that are refused here, or remarked on, it does not take.
func TestEnvoysTakeWhatIsAccepted(t *testing.T) {
	program := os.Getenv("ENVOY")
	if program == "" {
		program = "../../.tools/envoy"
	}
	later := now.Add(time.Hour)
	ca := newAuthority(t, later)
	leaf := func(public, private any, change func(*x509.Certificate)) (certificate, key []byte) {
		c := &x509.Certificate{SerialNumber: big.NewInt(7), NotBefore: now.Add(-2 * time.Hour), NotAfter: later, DNSNames: []string{"a.example"}}
		if change != nil {
			change(c)
		}
		return ca.sign(c, public, private)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	modulus, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	extension := func(id asn1.ObjectIdentifier, critical bool, value ...byte) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: id, Critical: critical, Value: value})
		}
	}
	mustStaple := extension(asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24}, false, 0x30, 3, 2, 1, 5)
	type data = map[string][]byte
	pair := func(public, private any, change func(*x509.Certificate)) data {
		certificate, key := leaf(public, private, change)
		return data{"tls.crt": certificate, "tls.key": key, "ca.crt": ca.pem()}
	}
	with := func(d data, key string, value []byte) data {
		d[key] = value
		return d
	}
	staple := func(r ocsp.Response) []byte {
		r.SerialNumber = big.NewInt(7)
		return ca.respond(r)
	}
	other := newAuthority(t, later)
	crl := func(a *authority, l *x509.RevocationList) []byte {
		der, err := x509.CreateRevocationList(rand.Reader, l, a.cert, a.key)
		must.Succeed(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
	}
	own, _ := leaf(&ec.PublicKey, ec, nil)
	listeners := map[string]any{}
	for name, d := range map[string]data{
		"ECDSA":   pair(&ec.PublicKey, ec, nil),
		"RSA":     pair(&modulus.PublicKey, modulus, nil),
		"Ed25519": pair(public, private, nil),
		"it is stapled": with(pair(&ec.PublicKey, ec, mustStaple), "tls.ocsp-staple",
			staple(ocsp.Response{Status: ocsp.Good, NextUpdate: later})),
		"revoked by the staple": with(pair(&ec.PublicKey, ec, nil), "tls.ocsp-staple",
			staple(ocsp.Response{Status: ocsp.Revoked, RevokedAt: now, NextUpdate: later})),
		"unknown by the staple": with(pair(&ec.PublicKey, ec, nil), "tls.ocsp-staple",
			staple(ocsp.Response{Status: ocsp.Unknown, NextUpdate: later})),
		"a staple without end": with(pair(&ec.PublicKey, ec, nil), "tls.ocsp-staple", staple(ocsp.Response{Status: ocsp.Good})),
		"a staple with SHA-1": with(pair(&ec.PublicKey, ec, nil), "tls.ocsp-staple", staple(ocsp.Response{
			Status: ocsp.Good, NextUpdate: later, Certificate: ca.cert, SignatureAlgorithm: x509.ECDSAWithSHA1,
		})),
		"no response": with(pair(&ec.PublicKey, ec, nil), "tls.ocsp-staple", ocsp.TryLaterErrorResponse),
		"for clients": pair(&ec.PublicKey, ec,
			func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }),
		"an unknown extension": pair(&ec.PublicKey, ec, extension(asn1.ObjectIdentifier{1, 2, 3, 4}, true, 5, 0)),
		"a common name":        pair(&ec.PublicKey, ec, func(c *x509.Certificate) { c.DNSNames, c.Subject.CommonName = nil, "a" }),
		"an address": pair(&ec.PublicKey, ec,
			func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, []net.IP{net.IPv4(1, 2, 3, 4)} }),
		"a URI": pair(&ec.PublicKey, ec,
			func(c *x509.Certificate) { c.DNSNames, c.URIs = nil, []*url.URL{{Scheme: "spiffe", Host: "a"}} }),
		"RSA to encipher":    pair(&modulus.PublicKey, modulus, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }),
		"RSA to sign others": pair(&modulus.PublicKey, modulus, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign }),
		"not yet": pair(&ec.PublicKey, ec, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		}),
		"a leaf as CA": with(pair(&ec.PublicKey, ec, nil), "ca.crt", own),
		"a CA twice":   with(pair(&ec.PublicKey, ec, nil), "ca.crt", append(ca.pem(), ca.pem()...)),
		"a list":       with(pair(&ec.PublicKey, ec, nil), "ca.crl", ca.crl()),
		"a list twice": with(pair(&ec.PublicKey, ec, nil), "ca.crl", append(ca.crl(), ca.crl()...)),
		"another's list": with(pair(&ec.PublicKey, ec, nil), "ca.crl",
			crl(other, &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now, NextUpdate: later})),
		"a list with extensions": with(pair(&ec.PublicKey, ec, nil), "ca.crl", crl(ca, &x509.RevocationList{
			Number: big.NewInt(1), ThisUpdate: now, NextUpdate: later,
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}}},
		})),
	} {
		p := credentials.OfSecret(&corev1.Secret{Data: d}, now)
		if p.Certificate == nil || p.Roots == nil {
			t.Errorf("%s: %v, %v", name, p.BadCertificate, p.BadRoots)
			continue
		}
		listeners[name] = listener(p)
	}
	validate := func(all ...any) error {
		text, err := json.Marshal(map[string]any{"static_resources": map[string]any{"listeners": all}})
		must.Succeed(t, err)
		config := filepath.Join(t.TempDir(), "envoy.json")
		must.Succeed(t, os.WriteFile(config, text, 0o600))
		said, err := exec.CommandContext(t.Context(), program, "-c", config, "--mode", "validate", "-l", "error").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	}
	if err := validate(slices.Collect(maps.Values(listeners))...); err != nil {
		t.Error(err)
		for name, l := range listeners { // Envoy does not say which it is
			if err := validate(l); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name, d := range map[string]data{
		"it has to be stapled": pair(&ec.PublicKey, ec, mustStaple),
		"an old staple": with(pair(&ec.PublicKey, ec, mustStaple), "tls.ocsp-staple",
			staple(ocsp.Response{Status: ocsp.Good, NextUpdate: now.Add(-time.Minute)})),
		"a CA's": pair(&ec.PublicKey, ec, func(c *x509.Certificate) {
			c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		}),
		"no names": pair(&ec.PublicKey, ec, func(c *x509.Certificate) { c.DNSNames = nil }),
		"an empty list of names": pair(&ec.PublicKey, ec, func(c *x509.Certificate) {
			c.DNSNames = nil
			extension(asn1.ObjectIdentifier{2, 5, 29, 17}, false, 0x30, 0)(c)
		}),
		"an organization":   pair(&ec.PublicKey, ec, func(c *x509.Certificate) { c.DNSNames, c.Subject.Organization = nil, []string{"a"} }),
		"a mail address":    pair(&ec.PublicKey, ec, func(c *x509.Certificate) { c.DNSNames, c.EmailAddresses = nil, []string{"a@b"} }),
		"ECDSA to encipher": pair(&ec.PublicKey, ec, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }),
	} {
		if p := credentials.OfSecret(&corev1.Secret{Data: d}, now); p.BadCertificate == nil && len(p.Remarks) == 0 {
			t.Errorf("%s: it is accepted, and Envoy does not take it", name)
		}
	}
}

// listener returns a listener of Envoy with the certificate and the roots of a Secret.
func listener(p credentials.Parsed) any {
	inline := func(b []byte) any { return map[string]any{"inline_bytes": b} }
	certificate := map[string]any{"certificate_chain": inline(p.Certificate.Chain), "private_key": inline(p.Certificate.Key)}
	if p.Certificate.Staple != nil {
		certificate["ocsp_staple"] = inline(p.Certificate.Staple)
	}
	roots := map[string]any{"trusted_ca": inline(p.Roots.Certificates)}
	if p.Roots.Revoked != nil {
		roots["crl"] = inline(p.Roots.Revoked)
	}
	return map[string]any{
		"address": map[string]any{"socket_address": map[string]any{"address": "127.0.0.1", "port_value": 0}},
		"filter_chains": []any{map[string]any{"transport_socket": map[string]any{"name": "tls", "typed_config": map[string]any{
			"@type":              "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
			"common_tls_context": map[string]any{"tls_certificates": []any{certificate}, "validation_context": roots},
		}}}},
	}
}
