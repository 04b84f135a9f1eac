package mcp_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/wrapperspb"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/config/mcp"
)

// authority is a CA whose files are in a directory.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
	next int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir(), next: 1}
	a.key = a.newKey()
	a.cert = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil, a.key.Public())
	a.write("ca.pem", "CERTIFICATE", a.cert.Raw)
	return a
}

func (a *authority) newKey() crypto.Signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(a.t, err)
	return key
}

func (a *authority) sign(c, parent *x509.Certificate, key crypto.PublicKey) *x509.Certificate {
	a.t.Helper()
	c.SerialNumber = big.NewInt(a.next)
	a.next++
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent = c
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, key, a.key)
	must.Succeed(a.t, err)
	out, err := x509.ParseCertificate(raw)
	must.Succeed(a.t, err)
	return out
}

// issue writes NAME.pem and NAME.key and returns the certificate: for 127.0.0.1, a DNS name and a SPIFFE ID, for both
// ends.
func (a *authority) issue(name string) tls.Certificate {
	a.t.Helper()
	key := a.newKey()
	leaf := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name + ".example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		URIs:        []*url.URL{{Scheme: "spiffe", Host: "c.local", Path: "/ns/sys/sa/" + name}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public())
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(a.t, err)
	a.write(name+".pem", "CERTIFICATE", leaf.Raw)
	a.write(name+".key", "PRIVATE KEY", raw)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// revoke signs a list with SHA-1, which must revoke even in Go's mode fips140=only.
func (a *authority) revoke(c *x509.Certificate) (file string) {
	a.t.Helper()
	fips140.WithoutEnforcement(func() {
		raw, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
			SignatureAlgorithm: x509.ECDSAWithSHA1, Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
			RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: c.SerialNumber, RevocationTime: time.Now()}},
		}, a.cert, a.key)
		must.Succeed(a.t, err)
		file = a.write("crl.pem", "X509 CRL", raw)
	})
	return file
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name, kind string, raw []byte) string {
	a.t.Helper()
	must.Succeed(a.t, os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600))
	return a.path(name)
}

func secured(cert tls.Certificate, clients *x509.Certificate) grpc.ServerOption {
	c := &tls.Config{Certificates: []tls.Certificate{cert}}
	if clients != nil {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		c.ClientCAs.AddCert(clients)
	}
	return grpc.Creds(credentials.NewTLS(c))
}

type settings = networkingv1alpha3.ClientTLSSettings

func TestTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	server := ca.issue("server")
	ca.issue("client")
	other.issue("client")
	const simple, mutual = networkingv1alpha3.ClientTLSSettings_SIMPLE, networkingv1alpha3.ClientTLSSettings_MUTUAL
	for _, c := range []struct {
		name     string
		settings *settings
		workload mcp.Files
		mutual   bool
		policy   compliance.Policy
		newest   bool   // the server speaks TLS 1.3 alone
		wrong    string // part of the finding while there is no connection
	}{
		{name: "simple", settings: &settings{Mode: simple, CaCertificates: ca.path("ca.pem")}},
		{name: "another CA", settings: &settings{Mode: simple, CaCertificates: other.path("ca.pem")}, wrong: "unknown authority"},
		{name: "a policy", settings: &settings{Mode: simple, CaCertificates: ca.path("ca.pem")}, policy: compliance.PQC},
		{
			name: "a policy that the server does not meet", settings: &settings{Mode: simple, CaCertificates: ca.path("ca.pem")},
			policy: compliance.FIPS1402, newest: true, wrong: "protocol version",
		},
		{name: "the system's CAs", settings: &settings{Mode: simple}, wrong: "unknown authority"},
		{name: "no such file", settings: &settings{Mode: simple, CaCertificates: "/nowhere.pem"}, wrong: "/nowhere.pem"},
		{
			name: "no certificate in the file", settings: &settings{Mode: simple, CaCertificates: ca.path("client.key")},
			wrong: "there is no certificate in PEM",
		},
		{name: "plaintext", settings: &settings{}, wrong: ""},
		{name: "sni", settings: &settings{Mode: simple, CaCertificates: ca.path("ca.pem"), Sni: "server.example"}},
		{name: "another sni", settings: &settings{Mode: simple, CaCertificates: ca.path("ca.pem"), Sni: "other.example"}, wrong: "other.example"},
		{name: "subjectAltNames", settings: &settings{
			Mode: simple, CaCertificates: ca.path("ca.pem"), Sni: "other.example",
			SubjectAltNames: []string{"x", "spiffe://c.local/ns/sys/sa/server"},
		}},
		{
			name:     "other subjectAltNames",
			settings: &settings{Mode: simple, CaCertificates: ca.path("ca.pem"), SubjectAltNames: []string{"spiffe://c.local/ns/sys/sa/other"}},
			wrong:    "subjectAltNames",
		},
		{
			name:     "subjectAltNames of another CA",
			settings: &settings{Mode: simple, CaCertificates: other.path("ca.pem"), SubjectAltNames: []string{"server.example"}},
			wrong:    "unknown authority",
		},
		{name: "unverified", settings: &settings{Mode: simple, InsecureSkipVerify: wrapperspb.Bool(true)}},
		{name: "revoked", settings: &settings{Mode: simple, CaCertificates: ca.path("ca.pem"), CaCrl: ca.revoke(server.Leaf)}, wrong: "revoked"},
		{name: "another is revoked", settings: &settings{Mode: simple, CaCertificates: ca.path("ca.pem"), CaCrl: other.revoke(server.Leaf)}},
		{
			name: "no revocation list", settings: &settings{Mode: simple, CaCertificates: ca.path("ca.pem"), CaCrl: "/nowhere.pem"},
			wrong: "revocation list",
		},
		{name: "mutual", mutual: true, settings: &settings{
			Mode: mutual, CaCertificates: ca.path("ca.pem"), ClientCertificate: ca.path("client.pem"), PrivateKey: ca.path("client.key"),
		}},
		{
			name: "mutual, of another CA", mutual: true, wrong: "tls",
			settings: &settings{
				Mode: mutual, CaCertificates: ca.path("ca.pem"), ClientCertificate: other.path("client.pem"), PrivateKey: other.path("client.key"),
			},
		},
		{
			name: "mutual, no pair", mutual: true, wrong: "client certificate",
			settings: &settings{
				Mode: mutual, CaCertificates: ca.path("ca.pem"), ClientCertificate: ca.path("client.pem"), PrivateKey: other.path("client.key"),
			},
		},
		{name: "simple where mutual is wanted", mutual: true, settings: &settings{Mode: simple, CaCertificates: ca.path("ca.pem")}, wrong: "tls"},
		{
			name: "istio mutual", mutual: true, settings: &settings{Mode: networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL},
			workload: mcp.Files{Certificate: ca.path("client.pem"), Key: ca.path("client.key"), CA: ca.path("ca.pem")},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			option := secured(server, nil)
			if c.mutual {
				option = secured(server, ca.cert)
			}
			if c.newest {
				only := &tls.Config{Certificates: []tls.Certificate{server}, MinVersion: tls.VersionTLS13}
				option = grpc.Creds(credentials.NewTLS(only))
			}
			address, _ := serve(t, newWorld(), "127.0.0.1:0", option)
			r := read(t, mcp.Options{Address: address, TLS: c.settings, Workload: c.workload, Compliance: c.policy})
			if c.wrong == "" && c.name != "plaintext" {
				eventually(t, "synced", r.HasSynced)
				return
			}
			eventually(t, "a finding that says "+c.wrong, func() bool {
				for _, d := range r.Findings() {
					if d.Code == "ConfigSource" && strings.Contains(d.Message, c.wrong) {
						return true
					}
				}
				return false
			})
			if r.HasSynced() {
				t.Error("synced all the same")
			}
		})
	}
}

// TestCertificatesAreReadAnew: a certificate that was renewed is used for the next connection.
func TestCertificatesAreReadAnew(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	old := *other
	old.dir = ca.dir // its certificate lies where the client looks
	old.issue("client")
	server := ca.issue("server")
	address, _ := serve(t, newWorld(), "127.0.0.1:0", secured(server, ca.cert))
	r := read(t, mcp.Options{Address: address, TLS: &settings{
		Mode: networkingv1alpha3.ClientTLSSettings_MUTUAL, CaCertificates: ca.path("ca.pem"), ClientCertificate: ca.path("client.pem"),
		PrivateKey: ca.path("client.key"),
	}})
	eventually(t, "a finding", func() bool { return r.finds("ConfigSource", "") })
	if r.HasSynced() {
		t.Fatal("synced with a certificate of nobody")
	}
	ca.issue("client")
	eventually(t, "synced", r.HasSynced)
}

// TestInvalidTLSSettings: what cannot be is refused with the field's name.
func TestInvalidTLSSettings(t *testing.T) {
	for _, c := range []struct {
		address  string
		settings *settings
		want     string
	}{
		{"xds://", nil, "address"},
		{"xds://host", nil, "address"},
		{"xds://:15010", nil, "address"},
		{"xds://host:15010", &settings{Mode: networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL}, "tlsSettings.mode"},
		{"xds://host:15010", &settings{Mode: networkingv1alpha3.ClientTLSSettings_MUTUAL}, "tlsSettings.clientCertificate"},
		{"xds://host:15010", &settings{Mode: networkingv1alpha3.ClientTLSSettings_MUTUAL, ClientCertificate: "x"}, "tlsSettings.privateKey"},
		{"xds://host:15010", &settings{Mode: 77}, "tlsSettings.mode"},
	} {
		if _, err := mcp.New(mcp.Options{Address: c.address, TLS: c.settings}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: %v", c.address, c.settings, err)
		}
	}
	for field, s := range map[string]*settings{
		"credentialName":       {CredentialName: "secret"},
		"caCertCredentialName": {CaCertCredentialName: "secret"},
		"insecureSkipVerify":   {Mode: networkingv1alpha3.ClientTLSSettings_SIMPLE, InsecureSkipVerify: wrapperspb.Bool(true)},
		"clientCertificate":    {Mode: networkingv1alpha3.ClientTLSSettings_SIMPLE, ClientCertificate: "x", PrivateKey: "y"},
	} {
		address, _ := serve(t, newWorld(), "127.0.0.1:0")
		r := read(t, mcp.Options{Address: address, TLS: s})
		eventually(t, "a finding about "+field, func() bool {
			for _, d := range r.Findings() {
				if d.Field == "configSources.tlsSettings."+field {
					return true
				}
			}
			return false
		})
	}
}

// TestTokenGoesToVerifiedServers: it goes to a server that is verified, as the file has it at that time, and nowhere
// else.
func TestTokenGoesToVerifiedServers(t *testing.T) {
	ca := newAuthority(t)
	option := secured(ca.issue("server"), nil)
	token := filepath.Join(t.TempDir(), "token")
	simple := networkingv1alpha3.ClientTLSSettings_SIMPLE
	verified := &settings{Mode: simple, CaCertificates: ca.path("ca.pem")}
	sent := func(s *settings, options ...grpc.ServerOption) []string {
		t.Helper()
		w := newWorld()
		address, _ := serve(t, w, "127.0.0.1:0", options...)
		r := read(t, mcp.Options{Address: address, TLS: s, Token: token})
		eventually(t, "synced", r.HasSynced)
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.headers[0].Get("authorization")
	}
	if got := sent(verified, option); got != nil {
		t.Errorf("without a file %v was sent", got)
	}
	must.Succeed(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	if got := sent(verified, option); len(got) != 1 || got[0] != "Bearer secret" {
		t.Errorf("over TLS %v was sent", got)
	}
	if got := sent(&settings{Mode: simple, InsecureSkipVerify: wrapperspb.Bool(true)}, option); got != nil {
		t.Errorf("to a server that is not verified %v was sent", got)
	}
	if got := sent(nil); got != nil {
		t.Errorf("over plaintext %v was sent", got)
	}
}
