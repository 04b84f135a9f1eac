package bootstrap

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// selfSigned returns a CA.
func selfSigned(t *testing.T) *pki.Bundle {
	t.Helper()
	b, err := pki.NewSelfSigned("example", 24*time.Hour, time.Now())
	must.Succeed(t, err)
	return b
}

// leafOf returns a certificate of a name that a CA signs.
func leafOf(t *testing.T, b *pki.Bundle, uri string) tls.Certificate {
	t.Helper()
	key, err := pki.GenerateKey()
	must.Succeed(t, err)
	der, _, err := b.Sign(pki.Leaf{URI: uri, Key: key.Public(), TTL: time.Hour}, time.Now())
	must.Succeed(t, err)
	leaf, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// plug writes a CA into the folder of a server, and what it has revoked.
func plug(t *testing.T, dir string, b *pki.Bundle, revoked ...*x509.Certificate) {
	t.Helper()
	f, err := b.Encode()
	must.Succeed(t, err)
	key, err := pki.ParseKey(f.Key)
	must.Succeed(t, err)
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, c := range revoked {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
	}
	crl, err := x509.CreateRevocationList(rand.Reader, template, b.Certificate, key)
	must.Succeed(t, err)
	must.Succeed(t, os.MkdirAll(dir, 0o700))
	for name, text := range map[string][]byte{
		"ca-cert.pem": f.Certificate, "ca-key.pem": f.Key, "root-cert.pem": f.Roots,
		"ca-crl.pem": pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: crl}),
	} {
		write(t, filepath.Join(dir, name), string(text))
	}
}

const nodeInA = "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local"

// TestRevoked refuses a certificate once its CA has revoked it, and ends the stream that it opened. A list that cannot
// be read keeps the last good one.
func TestRevoked(t *testing.T) {
	o, b := certificateOptions(t), selfSigned(t)
	o.Certificates.StateDir, o.ProofTime = "", 100*time.Millisecond
	plug(t, o.Certificates.Folder, b)
	s := started(t, o)
	pool := x509.NewCertPool()
	pool.AddCert(b.Roots[0])
	one, two := leafOf(t, b, "spiffe://cluster.local/ns/a/sa/web"), leafOf(t, b, "spiffe://cluster.local/ns/a/sa/web")
	ask := func(c tls.Certificate) codes.Code {
		_, err := streamAs(t.Context(), t, dialSecure(t, s.Addresses().SecureGRPC, pool, c), nodeInA)
		return status.Code(err)
	}
	if ask(one) != codes.OK || ask(two) != codes.OK {
		t.Fatal("good certificates are refused")
	}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(dialSecure(t, s.Addresses().SecureGRPC, pool, one)).
		StreamAggregatedResources(t.Context())
	must.Succeed(t, err)
	_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ClusterType, Node: &corev3.Node{Id: nodeInA}})
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	plug(t, o.Certificates.Folder, b, one.Leaf)
	if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream of the revoked certificate: %v", err)
	}
	eventually(t, "the revoked certificate is refused", func() bool { return ask(one) == codes.Unauthenticated })
	if ask(two) != codes.OK {
		t.Error("another certificate is refused")
	}
	write(t, filepath.Join(o.Certificates.Folder, "ca-crl.pem"), "x")
	eventually(t, "the list is found to be broken", func() bool { return strings.Contains(fmt.Sprint(s.findings()), "ca-crl.pem") })
	if ask(one) != codes.Unauthenticated || ask(two) != codes.OK {
		t.Error("the last good list does not hold")
	}
}

// TestAnchors lets in certificates of the roots in the mesh configuration, each for its trust domains alone.
func TestAnchors(t *testing.T) {
	o := certificateOptions(t)
	plain, old, foreign := selfSigned(t), selfSigned(t), selfSigned(t)
	mesh := "trustDomainAliases: [old.example]\ncaCertificates:\n"
	for _, c := range []struct {
		b       *pki.Bundle
		domains string
	}{{plain, ""}, {old, "old.example"}, {foreign, "elsewhere.example"}} {
		text := strings.ReplaceAll(strings.TrimSpace(string(pki.EncodeCertificates(c.b.Roots...))), "\n", "\n    ")
		mesh += fmt.Sprintf("- trustDomains: [%s]\n  pem: |\n    %s\n", c.domains, text)
	}
	o.MeshConfig = filepath.Join(t.TempDir(), "mesh.yaml")
	write(t, o.MeshConfig, mesh+"- pem: x\n- spiffeBundleUrl: http://elsewhere.example/bundle\n")
	s := started(t, o)
	const home, alias = "spiffe://cluster.local/ns/a/sa/web", "spiffe://old.example/ns/a/sa/web"
	const elsewhere = "spiffe://elsewhere.example/ns/a/sa/web"
	for what, c := range map[string]struct {
		by   *pki.Bundle
		uri  string
		want codes.Code // of a stream
		sign codes.Code // of a request for a certificate
	}{
		"a root of the mesh":                     {plain, home, codes.OK, codes.OK},
		"a root of the mesh, for an alias":       {plain, alias, codes.OK, codes.OK},
		"an alias's root":                        {old, alias, codes.OK, codes.PermissionDenied},
		"an alias's root, for the mesh's domain": {old, home, codes.Unauthenticated, codes.Unauthenticated},
		"another domain's root, for the mesh's":  {foreign, home, codes.Unauthenticated, codes.Unauthenticated},
		"another domain's root, for its own":     {foreign, elsewhere, codes.Unauthenticated, codes.Unauthenticated},
		"a stranger's root":                      {selfSigned(t), home, codes.Unavailable, codes.Unavailable}, // the handshake fails
	} {
		conn := dialSecure(t, s.Addresses().SecureGRPC, rootsOf(t, o), leafOf(t, c.by, c.uri))
		if _, err := streamAs(t.Context(), t, conn, nodeInA); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if _, err := issued(t.Context(), t, conn); status.Code(err) != c.sign {
			t.Errorf("%s: a request for a certificate: %v, want %v", what, err, c.sign)
		}
	}
	found := fmt.Sprint(s.findings())
	for _, want := range []string{"caCertificates[3]: pem", "caCertificates[4]: spiffeBundleUrl"} {
		if !strings.Contains(found, want) {
			t.Errorf("no finding %q in %s", want, found)
		}
	}
	write(t, o.MeshConfig, "trustDomainAliases: [old.example]\n")
	eventually(t, "a root that is gone from the mesh configuration does not count", func() bool {
		_, err := streamAs(t.Context(), t, dialSecure(t, s.Addresses().SecureGRPC, rootsOf(t, o), leafOf(t, plain, home)), nodeInA)
		return err != nil
	})
}

// TestSpiffeBundles fetches the roots of another trust domain, which count for it alone. What is served later counts
// then, and proxies are sent it. While nothing good is served, that is a finding.
func TestSpiffeBundles(t *testing.T) {
	first, second := selfSigned(t), selfSigned(t)
	bundle := func(b *pki.Bundle) string {
		text, err := json.Marshal(
			jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: b.Roots[0].PublicKey, Use: "x509-svid", Certificates: b.Roots}}})
		must.Succeed(t, err)
		return string(text)
	}
	var text atomic.Pointer[string]
	serve := func(s string) { text.Store(&s) }
	serve("top secret")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(*text.Load())) }))
	t.Cleanup(server.Close)
	o := certificateOptions(t)
	o.Certificates.MultiRoot = true
	o.KeySets.Allow, o.KeySets.ExtraRoots = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, filepath.Join(t.TempDir(), "roots.pem")
	write(t, o.KeySets.ExtraRoots, string(pki.EncodeCertificates(server.Certificate())))
	o.MeshConfig = filepath.Join(t.TempDir(), "mesh.yaml")
	write(t, o.MeshConfig,
		"trustDomainAliases: [old.example]\ncaCertificates:\n- trustDomains: [old.example]\n  spiffeBundleUrl: "+server.URL+"/bundle\n")
	s := started(t, o)
	const home, alias = "spiffe://cluster.local/ns/a/sa/web", "spiffe://old.example/ns/a/sa/web"
	ask := func(b *pki.Bundle, uri string) codes.Code {
		_, err := streamAs(t.Context(), t, dialSecure(t, s.Addresses().SecureGRPC, rootsOf(t, o), leafOf(t, b, uri)), nodeInA)
		return status.Code(err)
	}
	failing := func() bool { return strings.Contains(fmt.Sprint(s.findings()), "caCertificates[0].spiffeBundleUrl") }
	eventually(t, "the broken bundle is a finding", failing)
	if found := fmt.Sprint(s.findings()); strings.Contains(found, "top secret") {
		t.Errorf("a finding shows what was fetched: %s", found)
	}
	if code := ask(first, alias); code == codes.OK {
		t.Error("a root that nobody knows counts")
	}
	serve(bundle(first))
	eventually(t, "the root counts for its trust domain", func() bool { return ask(first, alias) == codes.OK })
	eventually(t, "proxies are sent the root", func() bool {
		roots := slices.Collect(s.world.Snapshot().Roots().All)
		return len(roots) == 2 && roots[1] == textOf(first)
	})
	if code := ask(first, home); code != codes.Unauthenticated {
		t.Errorf("the root counts for another trust domain: %v", code)
	}
	if ask(second, alias) == codes.OK || failing() {
		t.Errorf("another root counts, or a finding stays: %v", s.findings())
	}
}

// TestForwardedAndRevoked: a gateway that is trusted forwards the certificates of its clients. One that was revoked
// does not count. Neither does one about which the gateway says too little to know.
func TestForwardedAndRevoked(t *testing.T) {
	o, b := certificateOptions(t), selfSigned(t)
	o.Certificates.StateDir = ""
	o.Certificates.Gateways = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	one, two := leafOf(t, b, "spiffe://cluster.local/ns/a/sa/web"), leafOf(t, b, "spiffe://cluster.local/ns/a/sa/web")
	stranger := leafOf(t, selfSigned(t), "spiffe://cluster.local/ns/a/sa/web")
	plug(t, o.Certificates.Folder, b, one.Leaf)
	s := started(t, o)
	pool := x509.NewCertPool()
	pool.AddCert(b.Roots[0])
	const uri = "URI=spiffe://cluster.local/ns/a/sa/web"
	escaped := func(list ...*x509.Certificate) string { return url.PathEscape(string(pki.EncodeCertificates(list...))) }
	for name, c := range map[string]struct {
		header string
		want   codes.Code
	}{
		"good":                 {uri + `;Cert="` + escaped(two.Leaf) + `"`, codes.OK},
		"good, with its chain": {uri + `;Cert="x";Chain="` + escaped(two.Leaf, b.Roots[0]) + `"`, codes.OK},
		"revoked":              {uri + `;Cert="` + escaped(one.Leaf) + `"`, codes.Unauthenticated},
		"revoked, with its chain": {uri + `;Chain="` + escaped(one.Leaf, b.Roots[0]) + `";Cert="` + escaped(two.Leaf) + `"`,
			codes.Unauthenticated},
		"no certificate":        {uri, codes.Unauthenticated},
		"another's certificate": {"URI=spiffe://cluster.local/ns/a/sa/db;Cert=" + escaped(two.Leaf), codes.Unauthenticated},
		"of another root":       {uri + ";Cert=" + escaped(stranger.Leaf), codes.Unauthenticated},
		"a CA's":                {uri + ";Cert=" + escaped(b.Roots[0]), codes.Unauthenticated},
		"garbage":               {uri + ";Cert=%zz", codes.Unauthenticated},
		"garbage in a certificate": {uri + ";Cert=" + url.PathEscape("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
			codes.Unauthenticated},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-client-cert", c.header)
		if _, err := streamAs(ctx, t, dialSecure(t, s.Addresses().SecureGRPC, pool), nodeInA); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
