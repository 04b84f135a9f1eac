package credentials_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var now = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

// authority is a CA that issues for tests.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, expires time.Time) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: now.Add(-time.Hour), NotAfter: expires,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: []byte{1},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	must.Succeed(t, err)
	c, err = x509.ParseCertificate(der)
	must.Succeed(t, err)
	return &authority{t, c, key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) crl() []byte {
	a.t.Helper()
	der, err := x509.CreateRevocationList(rand.Reader,
		&x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now, NextUpdate: now.Add(time.Hour)}, a.cert, a.key)
	must.Succeed(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

func (a *authority) staple(serial int64, next time.Time) []byte {
	return a.respond(ocsp.Response{SerialNumber: big.NewInt(serial), Status: ocsp.Good, NextUpdate: next})
}

// respond returns an OCSP response. It has SHA-1 hashes of the issuer.
func (a *authority) respond(r ocsp.Response) (der []byte) {
	a.t.Helper()
	r.ThisUpdate = now.Add(-time.Hour)
	fips140.WithoutEnforcement(func() {
		var err error
		der, err = ocsp.CreateResponse(a.cert, a.cert, r, a.key)
		must.Succeed(a.t, err)
	})
	return der
}

// issue returns a certificate with serial number 7 and its key.
func (a *authority) issue(public, private any, expires time.Time) (certificate, key []byte) {
	a.t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(7), DNSNames: []string{"a.example"}, NotBefore: now.Add(-2 * time.Hour), NotAfter: expires}
	return a.sign(c, public, private)
}

// sign returns a certificate by a template, and its key.
func (a *authority) sign(template *x509.Certificate, public, private any) (certificate, key []byte) {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	must.Succeed(a.t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	must.Succeed(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func (a *authority) ec(curve elliptic.Curve, expires time.Time) (certificate, key []byte) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(curve, rand.Reader)
	must.Succeed(a.t, err)
	return a.issue(&private.PublicKey, private, expires)
}

// TestOfSecret has Secrets of both types, whole and broken in every way.
func TestOfSecret(t *testing.T) {
	later := now.Add(time.Hour)
	ca, old := newAuthority(t, later), newAuthority(t, now.Add(-time.Minute))
	cert, key := ca.ec(elliptic.P256(), later)
	_, otherKey := ca.ec(elliptic.P256(), later)
	expired, expiredKey := ca.ec(elliptic.P256(), now.Add(-time.Minute))
	curve, curveKey := ca.ec(elliptic.P224(), later)
	var weak, weakKey []byte
	fips140.WithoutEnforcement(func() {
		small, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // which is refused
		must.Succeed(t, err)
		weak, weakKey = ca.issue(&small.PublicKey, small, later)
	})
	noise := []byte("noise\n")
	cat := func(b ...[]byte) []byte { return bytes.Join(b, nil) }
	type data = map[string][]byte
	for _, c := range []struct {
		name               string
		data               data
		certificate, roots bool
		badCertificate     string // of the problem
		badRoots           string
		remark             string
	}{
		{name: "tls", data: data{"tls.crt": cert, "tls.key": key}, certificate: true},
		{name: "generic", data: data{"cert": cert, "key": key, "cacert": ca.pem()}, certificate: true, roots: true},
		{name: "generic comes first", data: data{"cert": cert, "key": key, "tls.crt": noise, "tls.key": noise}, certificate: true},
		{name: "noise around",
			data: data{"tls.crt": cat(noise, cert, noise, ca.pem(), noise), "tls.key": cat(noise, key, noise)}, certificate: true},
		{name: "CA alone", data: data{"ca.crt": cat(ca.pem(), old.pem())}, roots: true},
		{name: "CA and revoked", data: data{"ca.crt": ca.pem(), "ca.crl": cat(ca.crl(), noise)}, roots: true},
		{name: "nothing", data: data{"x": cert}},
		{name: "no key", data: data{"tls.crt": cert}, badCertificate: "tls.key: there is a certificate and no key"},
		{name: "no certificate", data: data{"key": key}, badCertificate: "cert: there is a key and no certificate"},
		{name: "another key", data: data{"tls.crt": cert, "tls.key": otherKey},
			badCertificate: "tls.key: it is not the private key of the certificate"},
		{name: "no private key", data: data{"tls.crt": cert, "tls.key": cert}, badCertificate: "tls.key: it is no private key"},
		{name: "an encrypted key", data: data{"tls.crt": cert, "tls.key": []byte("-----BEGIN RSA PRIVATE KEY-----\n" +
			"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n")},
			badCertificate: "tls.key: its private key is encrypted"},
		{name: "a broken key", data: data{"tls.crt": cert, "tls.key": []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")},
			badCertificate: `tls.key: the PEM block "PRIVATE KEY" holds no private key`},
		{name: "a key with another label",
			data: data{"tls.crt": cert, "tls.key": bytes.ReplaceAll(key, []byte(" PRIVATE"), []byte(" RSA PRIVATE"))}, certificate: true},
		{name: "a reversed chain", data: data{"tls.crt": cat(ca.pem(), cert), "tls.key": key},
			badCertificate: "tls.crt: the certificates are in the wrong order: number 2 is"},
		{name: "a broken joint", data: data{"tls.crt": cat(cert, bytes.TrimSpace(ca.pem()), ca.pem()), "tls.key": key},
			badCertificate: "tls.crt: PEM block 2 cannot be read"},
		{name: "a broken joint of CAs", data: data{"ca.crt": cat(ca.pem(), bytes.TrimSpace(ca.pem()), old.pem())},
			badRoots: "ca.crt: PEM block 2 cannot be read"},
		{name: "a broken joint of lists", data: data{"ca.crt": ca.pem(), "ca.crl": cat(ca.crl(), bytes.TrimSpace(ca.crl()), ca.crl())},
			badRoots: "ca.crl: PEM block 2 cannot be read"},
		{name: "expired", data: data{"tls.crt": expired, "tls.key": expiredKey}, badCertificate: "tls.crt: it expired at 2026-01-01T23:59:00Z"},
		{name: "garbage", data: data{"tls.crt": noise, "tls.key": key}, badCertificate: "tls.crt: there is no certificate in PEM"},
		{name: "a broken certificate behind", data: data{
			"tls.crt": cat(cert, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")), "tls.key": key,
		}, badCertificate: "tls.crt: certificate 2 cannot be parsed"},
		{name: "large", data: data{"tls.crt": bytes.Repeat(cert, 300), "tls.key": key}, badCertificate: "tls.crt: it has"},
		{name: "a large key", data: data{"tls.crt": cert, "tls.key": bytes.Repeat(key, 300)}, badCertificate: "tls.key: it has"},
		{name: "a weak key", data: data{"tls.crt": weak, "tls.key": weakKey}, badCertificate: "tls.crt: its RSA key has 1024 bits"},
		{name: "a curve", data: data{"tls.crt": curve, "tls.key": curveKey}, badCertificate: "tls.crt: proxies do not take the curve"},
		{name: "expired CAs", data: data{"tls.crt": cert, "tls.key": key, "ca.crt": old.pem()},
			certificate: true, badRoots: "ca.crt: it expired"},
		{name: "garbage for a CA", data: data{"cacert": noise}, badRoots: "cacert: there is no certificate"},
		{name: "a large CA", data: data{"ca.crt": bytes.Repeat(ca.pem(), 2000)}, badRoots: "ca.crt: it has"},
		{name: "garbage for revoked", data: data{"cacert": ca.pem(), "crl": noise}, badRoots: "crl: there is no list"},
		{name: "nothing for revoked", data: data{"ca.crt": ca.pem(), "ca.crl": {}}, badRoots: "ca.crl: there is no list"},
		{name: "nothing for generic revoked", data: data{"cacert": ca.pem(), "crl": {}}, badRoots: "crl: there is no list"},
		{name: "broken revoked", data: data{"ca.crt": ca.pem(), "ca.crl": []byte("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")},
			badRoots: "ca.crl: it cannot be parsed"},
		{name: "a staple", data: data{"tls.crt": cert, "tls.key": key, "tls.ocsp-staple": ca.staple(7, later)}, certificate: true},
		{name: "another's staple", data: data{"tls.crt": cert, "tls.key": key, "tls.ocsp-staple": ca.staple(8, later)},
			certificate: true, remark: "tls.ocsp-staple: it is for another"},
		{name: "an old staple", data: data{"tls.crt": cert, "tls.key": key, "tls.ocsp-staple": ca.staple(7, now.Add(-time.Minute))},
			certificate: true, remark: "tls.ocsp-staple: it expired"},
		{name: "no staple", data: data{"tls.crt": cert, "tls.key": key, "tls.ocsp-staple": noise},
			certificate: true, remark: "tls.ocsp-staple: it cannot be parsed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := map[string]string{}
			for k, v := range c.data {
				text[k] = string(v)
			}
			for _, s := range []*corev1.Secret{{Data: c.data}, {StringData: text}} {
				p := credentials.OfSecret(s, now)
				if got := p.Certificate != nil; got != c.certificate {
					t.Errorf("a certificate: %v", got)
				}
				if got := p.Roots != nil; got != c.roots {
					t.Errorf("CA certificates: %v", got)
				}
				is := func(got *credentials.Problem, want string) {
					t.Helper()
					if (got != nil) != (want != "") || got != nil && (!strings.HasPrefix(got.Error(), want) || got.Fix == "") {
						t.Errorf("%v, want %q", got, want)
					}
				}
				is(p.BadCertificate, c.badCertificate)
				is(p.BadRoots, c.badRoots)
				var remark *credentials.Problem
				for _, r := range p.Remarks {
					remark = r
				}
				is(remark, c.remark)
				if p.Certificate != nil && (bytes.Contains(p.Certificate.Chain, noise) ||
					bytes.Contains(p.Certificate.Key, noise) || len(p.Certificate.Staple) > 0 != (c.name == "a staple")) {
					t.Error("what is behind the certificate is sent")
				}
				if p.Roots != nil && (len(p.Roots.Revoked) > 0) != (c.name == "CA and revoked") {
					t.Error("revoked certificates")
				}
			}
		})
	}
	m := credentials.OfConfigMap(&corev1.ConfigMap{
		Data: map[string]string{"ca.crt": string(ca.pem()), "ca.crl": string(ca.crl()), "tls.crt": string(cert), "tls.key": string(key)},
	}, now)
	if m.Roots == nil || m.Certificate != nil || len(m.Roots.Revoked) == 0 {
		t.Error("a ConfigMap has other things than CA certificates")
	}
}

// TestCredentialIsPrintedRedacted prints what a Secret holds in every way that fmt, JSON and logs have.
func TestCredentialIsPrintedRedacted(t *testing.T) {
	const canary = "canary"
	certificate := &credentials.Certificate{Chain: []byte(canary), Key: []byte(canary), Staple: []byte(canary)}
	roots := &credentials.Roots{Certificates: []byte(canary), Revoked: []byte(canary)}
	c := credentials.Credential{Certificate: certificate, Roots: roots}
	var shown []string
	for _, v := range []any{c, &c, certificate, *certificate, roots, *roots,
		[]credentials.Credential{c}, struct{ C credentials.Credential }{c}, &kinds.Object{Spec: &c}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			shown = append(shown, fmt.Sprintf(verb, v))
		}
		b, err := json.Marshal(v)
		if err == nil { // a Kind has a function
			shown = append(shown, string(b))
		}
		var text bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Info("x", "credential", v)
		shown = append(shown, text.String())
	}
	for _, s := range shown {
		for _, form := range []string{canary, "63616e617279", "Y2FuYXJ5", "99 97 110 97 114 121"} {
			if strings.Contains(s, form) {
				t.Errorf("it shows %s", s)
			}
		}
	}
}

// TestReferences: what objects name, and where.
func TestReferences(t *testing.T) {
	server := func(s *networkingv1alpha3.ServerTLSSettings) *kinds.Object {
		return &kinds.Object{Spec: &networkingv1.Gateway{Servers: []*networkingv1alpha3.Server{{Tls: s}}}}
	}
	client := func(t *networkingv1alpha3.ClientTLSSettings) *kinds.Object {
		return &kinds.Object{Spec: &networkingv1.DestinationRule{
			TrafficPolicy: &networkingv1alpha3.TrafficPolicy{PortLevelSettings: []*networkingv1alpha3.TrafficPolicy_PortTrafficPolicy{{Tls: t}}},
			Subsets:       []*networkingv1alpha3.Subset{{TrafficPolicy: &networkingv1alpha3.TrafficPolicy{Tls: t}}},
		}}
	}
	const simple, mutual = networkingv1alpha3.ServerTLSSettings_SIMPLE, networkingv1alpha3.ServerTLSSettings_MUTUAL
	const tls = "spec.servers[0].tls."
	for _, c := range []struct {
		object *kinds.Object
		want   []string
	}{
		{server(&networkingv1alpha3.ServerTLSSettings{Mode: simple, CredentialName: "a"}), []string{tls + "credentialName kubernetes://a"}},
		{server(&networkingv1alpha3.ServerTLSSettings{Mode: mutual, CredentialName: "a"}),
			[]string{tls + "credentialName kubernetes://a", tls + "credentialName kubernetes://a-cacert"}},
		{server(&networkingv1alpha3.ServerTLSSettings{
			Mode: mutual, CredentialNames: []string{"a", "b"}, CaCertCredentialName: "configmap://n/c",
		}), []string{
			tls + "credentialNames[0] kubernetes://a", tls + "credentialNames[1] kubernetes://b",
			tls + "caCertCredentialName configmap://n/c-cacert",
		}},
		{server(&networkingv1alpha3.ServerTLSSettings{Mode: mutual, CredentialName: "builtin://"}), nil},
		{server(&networkingv1alpha3.ServerTLSSettings{Mode: mutual, ServerCertificate: "/c", PrivateKey: "/k", CaCertificates: "/r"}), nil},
		{server(&networkingv1alpha3.ServerTLSSettings{Mode: networkingv1alpha3.ServerTLSSettings_PASSTHROUGH, CredentialName: "a"}), nil},
		{client(&networkingv1alpha3.ClientTLSSettings{Mode: networkingv1alpha3.ClientTLSSettings_MUTUAL, CredentialName: "a"}), []string{
			"spec.trafficPolicy.portLevelSettings[0].tls.credentialName kubernetes://a",
			"spec.trafficPolicy.portLevelSettings[0].tls.credentialName kubernetes://a-cacert",
			"spec.subsets[0].trafficPolicy.tls.credentialName kubernetes://a",
			"spec.subsets[0].trafficPolicy.tls.credentialName kubernetes://a-cacert",
		}},
		{client(&networkingv1alpha3.ClientTLSSettings{Mode: networkingv1alpha3.ClientTLSSettings_MUTUAL, CredentialName: "a",
			CaCertCredentialName: "b"}), []string{
			"spec.trafficPolicy.portLevelSettings[0].tls.credentialName kubernetes://a",
			"spec.trafficPolicy.portLevelSettings[0].tls.caCertCredentialName kubernetes://b#ca",
			"spec.subsets[0].trafficPolicy.tls.credentialName kubernetes://a",
			"spec.subsets[0].trafficPolicy.tls.caCertCredentialName kubernetes://b#ca",
		}},
		{client(&networkingv1alpha3.ClientTLSSettings{Mode: networkingv1alpha3.ClientTLSSettings_SIMPLE,
			CaCertCredentialName: "configmap://n/c"}), []string{
			"spec.trafficPolicy.portLevelSettings[0].tls.caCertCredentialName configmap://n/c-cacert",
			"spec.subsets[0].trafficPolicy.tls.caCertCredentialName configmap://n/c-cacert",
		}},
		{client(&networkingv1alpha3.ClientTLSSettings{Mode: networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL, CredentialName: "a",
			CaCertCredentialName: "b"}), nil},
		{&kinds.Object{Spec: &networkingv1.Sidecar{}}, nil},
	} {
		var got []string
		for _, r := range credentials.References(c.object) {
			got = append(got, r.Field+" "+r.Resource)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}
