package credentials

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ocsp"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/armor"
)

// Bounds of the input, in bytes of PEM.
const (
	maxChain = 95_000
	maxKey   = 36_500
	maxRoots = 330_000
	minRSA   = 2048 // bits; Envoy accepts no smaller key
)

// Problem describes why a part of a Secret or a ConfigMap cannot be used. It never quotes content.
type Problem struct {
	Key     string // key in the data
	Message string
	Fix     string
}

func (p *Problem) Error() string { return p.Key + ": " + p.Message }

// Field returns the field of a Secret or a ConfigMap.
func (p *Problem) Field() string { return fmt.Sprintf("data[%q]", p.Key) }

// Parsed is the result of parsing a Secret or a ConfigMap.
type Parsed struct {
	Credential
	BadCertificate *Problem // why its certificate cannot be used; nil if it can
	BadRoots       *Problem // why its CA certificates cannot be used; nil if they can
	Remarks        []*Problem
}

// Keys of the data: of a Secret of type kubernetes.io/tls, and of a generic one.
const (
	tlsCertificate, genericCertificate = corev1.TLSCertKey, "cert"
	tlsKey, genericKey                 = corev1.TLSPrivateKeyKey, "key"
	tlsRoots, genericRoots             = "ca.crt", "cacert"
	tlsRevoked, genericRevoked         = "ca.crl", "crl"
	staple                             = "tls.ocsp-staple"
)

// contentOf returns the data of a Secret, and the keys under which it has a certificate and the key of that.
func contentOf(s *corev1.Secret) (data map[string][]byte, certificate, key string) {
	data = make(map[string][]byte, len(s.Data)+len(s.StringData))
	for k, v := range s.Data {
		data[k] = v
	}
	for k, v := range s.StringData {
		data[k] = []byte(v)
	}
	has := func(key string) bool { return len(data[key]) > 0 }
	if has(genericCertificate) && has(genericKey) || (has(genericCertificate) || has(genericKey)) && !has(tlsCertificate) && !has(tlsKey) {
		return data, genericCertificate, genericKey
	}
	return data, tlsCertificate, tlsKey
}

// ChainOf returns the text of the certificate chain of a Secret, which may be unusable. It is empty if there is none.
func ChainOf(s *corev1.Secret) []byte {
	data, certificate, _ := contentOf(s)
	return data[certificate]
}

// OfSecret parses a Secret at a time.
func OfSecret(s *corev1.Secret, now time.Time) Parsed {
	data, certificate, key := contentOf(s)
	has := func(key string) bool { return len(data[key]) > 0 }
	var p Parsed
	var leaf *x509.Certificate
	if has(certificate) || has(key) {
		p.Certificate, leaf, p.BadCertificate = parseCertificate(certificate, data[certificate], key, data[key], now)
	}
	if p.Certificate != nil && has(staple) {
		if bad := checkStaple(p.Certificate, data[staple], now); bad != nil {
			p.Remarks = append(p.Remarks, bad)
		} else {
			p.Certificate.Staple = data[staple]
		}
	}
	if p.Certificate != nil && slices.ContainsFunc(leaf.Extensions, isMustStaple) && p.Certificate.Staple == nil {
		p.Certificate, p.BadCertificate = nil, &Problem{certificate, "it requires an OCSP response, and there is no valid one",
			"add one in " + staple + ", in DER, or request a certificate that needs none"}
	}
	if p.Certificate != nil && isNameless(leaf) {
		p.Remarks = append(p.Remarks, &Problem{certificate,
			"it has no common name, DNS name, address or URI: gateways do not show it, clients do", "request a certificate with a name"})
	}
	p.parseRoots(data, now)
	return p
}

// OfConfigMap parses a ConfigMap at a time. It has only CA certificates.
func OfConfigMap(m *corev1.ConfigMap, now time.Time) Parsed {
	data := make(map[string][]byte, len(m.Data))
	for k, v := range m.Data {
		data[k] = []byte(v)
	}
	var p Parsed
	p.parseRoots(data, now)
	return p
}

// parseRoots parses the CA certificates and the revocation lists beside them.
func (p *Parsed) parseRoots(data map[string][]byte, now time.Time) {
	for _, keys := range [][2]string{{genericRoots, genericRevoked}, {tlsRoots, tlsRevoked}} {
		if len(data[keys[0]]) == 0 {
			continue
		}
		p.Roots, p.BadRoots = parseRoots(keys[0], data[keys[0]], now)
		if revoked, ok := data[keys[1]]; ok && p.Roots != nil {
			if p.BadRoots = p.Roots.revoke(keys[1], revoked); p.BadRoots != nil {
				p.Roots = nil
			}
		}
		return
	}
}

// parseCertificate returns a certificate with its key, and the parsed certificate itself, or else the problem.
func parseCertificate(certificateName string, certificate []byte, keyName string, key []byte, now time.Time) (
	c *Certificate, leaf *x509.Certificate, bad *Problem) {
	switch {
	case len(certificate) == 0:
		return nil, nil, &Problem{certificateName, "there is a key and no certificate", "add the certificate, in PEM"}
	case len(key) == 0:
		return nil, nil, &Problem{keyName, "there is a certificate and no key", "add the private key of the certificate, in PEM"}
	case len(key) > maxKey:
		return nil, nil, &Problem{keyName, fmt.Sprintf("it has %d bytes, more than %d", len(key), maxKey), "add one private key alone"}
	}
	chain, list, bad := parseCertificates(certificateName, certificate, maxChain)
	if bad != nil {
		return nil, nil, bad
	}
	signer, private, bad := parseKey(keyName, key)
	if bad != nil {
		return nil, nil, bad
	}
	at := armor.IndexOf(list, signer)
	if at > 0 {
		const fix = "write the certificate of the key first, and behind it the certificate of its issuer"
		return nil, nil, &Problem{certificateName, armor.WrongOrder(at), fix}
	}
	leaf = list[0]
	if now.After(leaf.NotAfter) {
		return nil, nil, expired(certificateName, leaf)
	}
	switch public := leaf.PublicKey.(type) {
	case *rsa.PublicKey:
		if public.N.BitLen() < minRSA {
			return nil, nil, &Problem{certificateName,
				fmt.Sprintf("its RSA key has %d bits, and proxies take no less than %d", public.N.BitLen(), minRSA),
				"request a certificate for a longer key"}
		}
	case *ecdsa.PublicKey:
		if !slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, public.Curve) {
			return nil, nil, &Problem{certificateName, "proxies do not take the curve of its key", "request a certificate for a key of P-256"}
		}
	}
	if _, ec := leaf.PublicKey.(*ecdsa.PublicKey); ec && leaf.KeyUsage != 0 && leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return nil, nil, &Problem{certificateName, "its key may not be used for signatures", "request a certificate for servers or clients"}
	}
	if at < 0 {
		return nil, nil, &Problem{keyName, "it is not the private key of the certificate", "add the key and the certificate that belong together"}
	}
	encoded := pem.EncodeToMemory(private)
	if _, err := tls.X509KeyPair(chain, encoded); err != nil { // its error may describe the key
		return nil, nil, &Problem{keyName, "it cannot be used with the certificate", "add the key and the certificate that belong together"}
	}
	return &Certificate{Chain: chain, Key: encoded, Expires: leaf.NotAfter}, leaf, nil
}

// isNameless reports whether a server certificate has none of the names that Envoy looks for.
func isNameless(c *x509.Certificate) bool {
	return c.Subject.CommonName == "" && len(c.DNSNames)+len(c.URIs)+len(c.IPAddresses) == 0
}

// isMustStaple reports whether an extension requires an OCSP response with the certificate: RFC 7633.
func isMustStaple(e pkix.Extension) bool {
	return e.Id.Equal(asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24})
}

// parseKey returns the first private key of a text, and its block without headers and with the label of its content.
func parseKey(name string, text []byte) (crypto.Signer, *pem.Block, *Problem) {
	const fix = "add the private key of the certificate, without a passphrase"
	blocks, err := armor.Blocks(text)
	if err != nil {
		return nil, nil, &Problem{name, err.Error(), fix}
	}
	for _, b := range blocks {
		if strings.HasSuffix(b.Type, "PRIVATE KEY") {
			if !armor.IsPrivateKey(b) {
				return nil, nil, &Problem{name, "its private key is encrypted, or has another form than PKCS #8, PKCS #1 and SEC 1", fix}
			}
			signer, labelled, err := armor.PrivateKey(b)
			if err != nil {
				return nil, nil, &Problem{name, err.Error(), fix}
			}
			return signer, labelled, nil
		}
	}
	return nil, nil, &Problem{name, "it is no private key in PEM", fix}
}

// parseCertificates returns the certificates of a text: as PEM without other text, and parsed.
func parseCertificates(name string, text []byte, limit int) ([]byte, []*x509.Certificate, *Problem) {
	if len(text) > limit {
		return nil, nil, &Problem{name, fmt.Sprintf("it has %d bytes, more than %d", len(text), limit),
			"add the certificates that are needed alone"}
	}
	list, err := armor.Certificates(text)
	if err != nil {
		return nil, nil, &Problem{name, err.Error(), "add certificates in PEM"}
	}
	var encoded []byte
	for _, c := range list {
		encoded = append(encoded, pem.EncodeToMemory(&pem.Block{Type: armor.Certificate, Bytes: c.Raw})...)
	}
	return encoded, list, nil
}

func expired(name string, c *x509.Certificate) *Problem {
	return &Problem{name, "it expired at " + c.NotAfter.UTC().Format(time.RFC3339), "renew it"}
}

func parseRoots(name string, text []byte, now time.Time) (*Roots, *Problem) {
	encoded, list, bad := parseCertificates(name, text, maxRoots)
	if bad != nil {
		return nil, bad
	}
	if !slices.ContainsFunc(list, func(c *x509.Certificate) bool { return !now.After(c.NotAfter) }) {
		return nil, expired(name, list[0])
	}
	last := slices.MaxFunc(list, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return &Roots{Certificates: encoded, Expires: last.NotAfter}, nil
}

// revoke adds revocation lists in PEM. A text without a list is an error, because it would revoke nothing.
func (r *Roots) revoke(name string, text []byte) *Problem {
	if len(text) > maxRoots {
		return &Problem{name, fmt.Sprintf("it has %d bytes, more than %d", len(text), maxRoots), "add the lists that are needed alone"}
	}
	blocks, err := armor.Blocks(text)
	if err != nil {
		return &Problem{name, err.Error(), "add lists of revoked certificates in PEM"}
	}
	for _, b := range blocks {
		if b.Type != armor.Revoked {
			continue
		}
		l, err := x509.ParseRevocationList(b.Bytes)
		if err != nil {
			return &Problem{name, fmt.Sprintf("it cannot be parsed: %v", err), "add lists of revoked certificates in PEM"}
		}
		if next := l.NextUpdate; !next.IsZero() && (r.Renewal.IsZero() || next.Before(r.Renewal)) {
			r.Renewal = next
		}
		r.Revoked = append(r.Revoked, pem.EncodeToMemory(&pem.Block{Type: b.Type, Bytes: b.Bytes})...)
	}
	if len(r.Revoked) == 0 {
		return &Problem{name, "there is no list of revoked certificates in PEM in it", "add one, or remove the key"}
	}
	return nil
}

// checkStaple returns the problem of a stapled OCSP response for a certificate, or nil.
func checkStaple(c *Certificate, der []byte, now time.Time) *Problem {
	b, _ := pem.Decode(c.Chain)
	leaf, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		return &Problem{staple, "it is for no certificate", "remove it"}
	}
	// Clients verify the signature. ParseResponse verifies it too if the response has a certificate, which panics for
	// SHA-1 in Go's mode fips140=only.
	var r *ocsp.Response
	fips140.WithoutEnforcement(func() { r, err = ocsp.ParseResponse(der, nil) })
	switch {
	case err != nil:
		return &Problem{staple, fmt.Sprintf("it cannot be parsed, and is left out: %v", err), "add a response of OCSP in DER"}
	case r.SerialNumber.Cmp(leaf.SerialNumber) != 0:
		return &Problem{staple, "it is for another certificate, and is left out", "add the response for this one"}
	case !r.NextUpdate.IsZero() && now.After(r.NextUpdate):
		return &Problem{staple, "it expired at " + r.NextUpdate.UTC().Format(time.RFC3339) + ", and is left out", "renew it"}
	}
	return nil
}
