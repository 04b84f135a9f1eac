package authenticate_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

// TestCertificates judges client certificates by what is in them.
func TestCertificates(t *testing.T) {
	now := start
	c := authenticate.Certificates{Trusts: func(td string) bool { return td == "cluster.local" }, Now: func() time.Time { return now }}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_ = key
	for text, good := range map[string]bool{
		"spiffe://cluster.local/ns/a/sa/web":                                     true,
		"spiffe://other/ns/a/sa/web":                                             false,
		"spiffe://Cluster.local/ns/a/sa/web":                                     false,
		"spiffe://cluster.local/ns/a/sa/../sa/web":                               false,
		"spiffe://cluster.local/ns/a%2fb/sa/web":                                 false,
		"https://cluster.local/ns/a/sa/web":                                      false,
		"spiffe://cluster.local/ns/a/sa/web spiffe://cluster.local/ns/a/sa/web2": false,
		"": false,
	} {
		leaf := &x509.Certificate{NotAfter: start}
		for f := range strings.FieldsSeq(text) {
			leaf.URIs = append(leaf.URIs, must(url.Parse(f)))
		}
		p, err := c.Authenticate(t.Context(), authenticate.Request{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}})
		if (err == nil) != good || good && (p.ID != web || p.Proof != identity.Certificate || !p.Expires.Equal(start)) {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
		_, err = c.Authenticate(t.Context(), authenticate.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}})
		if !errors.Is(err, authenticate.ErrNoCredential) {
			t.Errorf("%q, not verified: %v", text, err)
		}
	}
	leaf := &x509.Certificate{NotAfter: start, URIs: []*url.URL{must(url.Parse("spiffe://cluster.local/ns/a/sa/web"))}}
	now = start.Add(time.Second)
	if p, err := c.Authenticate(t.Context(), authenticate.Request{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}}); err == nil {
		t.Errorf("a connection is older than its certificate: %+v", p)
	}
}

// TestForwarded believes a header from the named ranges alone.
func TestForwarded(t *testing.T) {
	f := authenticate.Forwarded{Gateways: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Trusts: func(td string) bool { return td == "cluster.local" }, Now: time.Now}
	in, out := netip.MustParseAddrPort("10.1.2.3:4"), netip.MustParseAddrPort("127.0.0.1:4")
	const uri = "URI=spiffe://cluster.local/ns/a/sa/web"
	for _, c := range []struct {
		from   netip.AddrPort
		header string
		good   bool
	}{
		{in, uri, true},
		{in, `By=spiffe://cluster.local/ns/g/sa/gw;Hash=12;Subject="CN=a,O=\"b;c\"";` + uri, true},
		{netip.MustParseAddrPort("[::ffff:10.1.2.3]:4"), uri, true},
		{out, uri, false},
		{netip.AddrPort{}, uri, false},
		{in, "", false},
		{in, uri + "," + uri, false},
		{in, uri + ";" + uri, false},
		{in, "By=x," + uri, false},
		{in, `Subject="` + uri, false},
		{in, "URI=spiffe://other/ns/a/sa/web", false},
		{in, "URI", false},
		{in, strings.Repeat("a=b;", 10000) + uri, false},
	} {
		p, err := f.Authenticate(t.Context(), authenticate.Request{Address: c.from, TLS: &tls.ConnectionState{}, Forwarded: c.header})
		if (err == nil) != c.good || c.good && p.ID != web {
			t.Errorf("%s, %.60q: %+v, %v", c.from, c.header, p, err)
		}
		if _, err := f.Authenticate(t.Context(), authenticate.Request{Address: c.from, Forwarded: c.header}); !errors.Is(err, authenticate.ErrNoCredential) {
			t.Errorf("over plaintext: %v", err)
		}
	}
}

// TestForwardedByFederatedRoots: a forwarded certificate may be of any root that counts for its trust domain.
func TestForwardedByFederatedRoots(t *testing.T) {
	f := authenticate.Forwarded{
		Gateways: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Trusts: func(string) bool { return true }, Now: time.Now,
		Federated: func(td string) bool { return td == "alias" },
	}
	for td, want := range map[string]bool{"alias": true, "cluster.local": false} {
		p, err := f.Authenticate(t.Context(), authenticate.Request{
			Address: netip.MustParseAddrPort("10.1.2.3:4"), TLS: &tls.ConnectionState{}, Forwarded: "URI=spiffe://" + td + "/ns/a/sa/web",
		})
		if err != nil || p.Federated != want {
			t.Errorf("%s: %+v, %v", td, p, err)
		}
	}
}
