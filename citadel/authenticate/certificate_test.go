package authenticate_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

// TestCertificates checks client certificates by what is in them.
func TestCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := authenticate.Certificates{TrustDomains: &domains{}}
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
		time.Sleep(time.Second)
		if p, err := c.Authenticate(t.Context(),
			authenticate.Request{TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}}); err == nil {
			t.Errorf("a connection is older than its certificate: %+v", p)
		}
	})
}

// TestVouched: of several chains of a certificate one good one is enough. If only federated roots vouch, the peer is
// federated.
func TestVouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaf := &x509.Certificate{NotAfter: start, URIs: []*url.URL{must(url.Parse("spiffe://cluster.local/ns/a/sa/web"))}}
		good, federated, bad := &x509.Certificate{}, &x509.Certificate{}, &x509.Certificate{}
		c := authenticate.Certificates{
			TrustDomains: &domains{federated: []*x509.Certificate{federated}, bad: []*x509.Certificate{bad}},
		}
		for name, x := range map[string]struct {
			roots     []*x509.Certificate
			good      bool
			federated bool
		}{
			"good":                   {[]*x509.Certificate{good}, true, false},
			"federated":              {[]*x509.Certificate{federated}, true, true},
			"federated, good":        {[]*x509.Certificate{federated, good}, true, false},
			"bad, good":              {[]*x509.Certificate{bad, good}, true, false},
			"bad, federated":         {[]*x509.Certificate{bad, federated}, true, true},
			"bad":                    {[]*x509.Certificate{bad}, false, false},
			"bad by whichever chain": {[]*x509.Certificate{bad, bad}, false, false},
		} {
			var chains [][]*x509.Certificate
			for _, root := range x.roots {
				chains = append(chains, []*x509.Certificate{leaf, root})
			}
			p, err := c.Authenticate(t.Context(), authenticate.Request{TLS: &tls.ConnectionState{VerifiedChains: chains}})
			if (err == nil) != x.good || p.Proved() != x.good || p.Federated != x.federated {
				t.Errorf("%s: %+v, %v", name, p, err)
			}
		}
		leaf.IsCA = true
		if p, err := c.Authenticate(t.Context(), authenticate.Request{
			TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf, good}}},
		}); err == nil {
			t.Errorf("a CA's certificate is of a workload: %+v", p)
		}
	})
}

// TestForwardedAndRevoked: once certificates may have been revoked, a header has to have the certificate that it is
// about, and that one has to be good.
func TestForwardedAndRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		certificate := func(uri string) string {
			template := &x509.Certificate{SerialNumber: big.NewInt(1), URIs: []*url.URL{must(url.Parse(uri))}, NotAfter: start}
			der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
			return url.PathEscape(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
		}
		const id = "spiffe://cluster.local/ns/a/sa/web"
		own, other := certificate(id), certificate("spiffe://cluster.local/ns/a/sa/db")
		d := &domains{revokes: true}
		f := authenticate.Forwarded{Gateways: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, TrustDomains: d}
		judge := func(header string) error {
			p, err := f.Authenticate(t.Context(), authenticate.Request{Address: netip.MustParseAddrPort("10.1.2.3:4"), TLS: &tls.ConnectionState{},
				Forwarded: header})
			if p.Proved() != (err == nil) {
				t.Errorf("%.60q: %+v, %v", header, p, err)
			}
			return err
		}
		for header, want := range map[string]string{
			"URI=" + id + `;Cert="` + own + `"`:                       "",
			"URI=" + id + `;Chain="` + own + other + `"`:              "",
			"URI=" + id + `;Cert="` + own + `";Chain="` + own + other: "open quote",
			"URI=" + id:                                                     "has no certificate to check",
			"URI=" + id + `;Cert=""`:                                        "has no certificate to check",
			"URI=" + id + `;Cert="%zz"`:                                     "malformed",
			"URI=" + id + `;Cert="junk"`:                                    "cannot be parsed",
			"URI=" + id + `;Cert="` + other + `"`:                           "of another identity",
			"URI=" + id + `;Cert="` + own + `";Chain="` + other + `"`:       "of another identity", // Chain is what the gateway verified
			"URI=" + id + `;Chain="` + other + `";Cert="` + own + `"`:       "of another identity",
			"URI=" + id + `;Chain="` + other + own + `";Cert="` + own + `"`: "of another identity",
		} {
			if err := judge(header); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%.80q: %v, want %s", header, err, want)
			}
		}
		good := "URI=" + id + `;Cert="` + own + `"`
		for _, failure := range []*error{&d.unverified, &d.untrusted} {
			*failure = errors.New("revoked")
			if err := judge(good); err == nil || !strings.Contains(err.Error(), "revoked") {
				t.Errorf("%v", err)
			}
			*failure = nil
		}
		d.revokes = false
		if err := judge("URI=" + id); err != nil {
			t.Errorf("nothing was revoked: %v", err)
		}
	})
}

// TestForwarded believes a header from the named ranges alone.
func TestForwarded(t *testing.T) {
	f := authenticate.Forwarded{Gateways: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, TrustDomains: &domains{}}
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
		if _, err := f.Authenticate(t.Context(),
			authenticate.Request{Address: c.from, Forwarded: c.header}); !errors.Is(err, authenticate.ErrNoCredential) {
			t.Errorf("over plaintext: %v", err)
		}
	}
}

// TestForwardedByFederatedRoots: a forwarded certificate may be of any root that counts for its trust domain.
func TestForwardedByFederatedRoots(t *testing.T) {
	f := authenticate.Forwarded{Gateways: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, TrustDomains: &domains{alias: true}}
	for td, want := range map[string]bool{"alias": true, "cluster.local": false} {
		p, err := f.Authenticate(t.Context(), authenticate.Request{
			Address: netip.MustParseAddrPort("10.1.2.3:4"), TLS: &tls.ConnectionState{}, Forwarded: "URI=spiffe://" + td + "/ns/a/sa/web",
		})
		if err != nil || p.Federated != want {
			t.Errorf("%s: %+v, %v", td, p, err)
		}
	}
}
