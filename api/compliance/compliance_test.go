package compliance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestParse(t *testing.T) {
	for _, name := range []string{"", "fips-140-2", "fips-140-3", "pqc"} {
		if p, err := Parse(name); err != nil || string(p) != name {
			t.Errorf("%q: %s %v", name, p, err)
		}
	}
	for _, name := range []string{"fips", "FIPS-140-2", "pqc ", "none"} {
		if p, err := Parse(name); err == nil || p != None || !strings.Contains(err.Error(), "write fips-140-2, fips-140-3 or pqc") {
			t.Errorf("%q: %s %v", name, p, err)
		}
	}
}

// TestHandshakes lets a side with a policy meet a side that offers what a row says. Each side is a server once.
func TestHandshakes(t *testing.T) {
	certificate := selfSigned(t)
	only := func(version uint16, curves []tls.CurveID, suites ...uint16) *tls.Config {
		c := &tls.Config{MinVersion: tls.VersionTLS12, CurvePreferences: curves, CipherSuites: suites}
		if version != 0 {
			c.MinVersion, c.MaxVersion = version, version
		}
		return c
	}
	const refused = "refused"
	p256, p384, p521 := []tls.CurveID{tls.CurveP256}, []tls.CurveID{tls.CurveP384}, []tls.CurveID{tls.CurveP521}
	old, mlkem := []tls.CurveID{tls.X25519}, []tls.CurveID{tls.X25519MLKEM768}
	for _, c := range []struct {
		policy Policy
		other  *tls.Config
		want   string
		mode   string // instead of want, in Go's FIPS 140-3 mode; empty for want
	}{
		{None, only(0, old), "TLS 1.3 X25519", refused},
		{FIPS1402, only(0, nil), "TLS 1.2 CurveP256", ""},
		{FIPS1402, only(tls.VersionTLS13, nil), refused, ""},
		{FIPS1402, only(0, p384), refused, ""},
		{FIPS1402, only(0, p256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256), refused, ""},
		{FIPS1402, only(0, p256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA), refused, ""},
		{FIPS1402, only(0, p256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384), "TLS 1.2 CurveP256", ""},
		{FIPS1403, only(0, p384), "TLS 1.2 CurveP384", "TLS 1.3 CurveP384"},
		{FIPS1403, only(tls.VersionTLS13, p256), refused, "TLS 1.3 CurveP256"},
		{FIPS1403, only(0, old), refused, ""},
		{FIPS1403, only(0, mlkem), refused, ""},
		{FIPS1403, only(tls.VersionTLS12, p521), refused, ""},
		{FIPS1403, only(tls.VersionTLS12, p256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256), refused, ""},
		{PQC, only(0, nil), "TLS 1.3 X25519MLKEM768", ""},
		{PQC, only(0, p256), refused, ""},
		{PQC, only(tls.VersionTLS12, nil), refused, ""},
	} {
		want := c.want
		if c.mode != "" && fips140.Enabled() {
			want = c.mode
		}
		for _, serves := range []bool{true, false} {
			limited := c.policy.Limit(&tls.Config{MinVersion: tls.VersionTLS12})
			server, client := limited, c.other.Clone()
			if !serves {
				server, client = client, limited
			}
			server.Certificates, client.InsecureSkipVerify = []tls.Certificate{certificate}, true
			got := refused
			if s, err := handshake(t, server, client); err == nil {
				got = tls.VersionName(s.Version) + " " + s.CurveID.String()
			}
			if got != want {
				t.Errorf("%q, serves %v, other side %+v: %s, want %s", c.policy, serves, c.other, got, want)
			}
		}
	}
}

func TestCipherSuiteIsChecked(t *testing.T) {
	own := errors.New("revoked")
	for _, p := range []Policy{FIPS1402, FIPS1403, PQC} {
		c := p.Limit(&tls.Config{VerifyConnection: func(tls.ConnectionState) error { return own }})
		err := c.VerifyConnection(tls.ConnectionState{CipherSuite: tls.TLS_CHACHA20_POLY1305_SHA256})
		if err == nil || !strings.Contains(err.Error(), "does not allow the cipher suite TLS_CHACHA20_POLY1305_SHA256") {
			t.Errorf("%s: %v", p, err)
		}
		if err := c.VerifyConnection(tls.ConnectionState{CipherSuite: tls.TLS_AES_128_GCM_SHA256}); !errors.Is(err, own) {
			t.Errorf("%s: the check that was there does not run: %v", p, err)
		}
		if err := p.Limit(&tls.Config{}).VerifyConnection(tls.ConnectionState{CipherSuite: tls.TLS_AES_256_GCM_SHA384}); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestConflict(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		mode   bool
		want   [2]string // for a minimum of TLS 1.2 and of TLS 1.3
	}{
		{None, false, [2]string{}},
		{FIPS1402, true, [2]string{"", "choose another policy"}},
		{FIPS1403, false, [2]string{"", "set GODEBUG=fips140=only"}},
		{FIPS1403, true, [2]string{}},
		{PQC, false, [2]string{}},
	} {
		for i, least := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			err := c.policy.conflict(least, c.mode)
			if (err == nil) != (c.want[i] == "") || err != nil && !strings.Contains(err.Error(), c.want[i]) {
				t.Errorf("%q, mode %v, minimum %s: %v, want %q", c.policy, c.mode, tls.VersionName(least), err, c.want[i])
			}
		}
	}
}

func TestRestrict(t *testing.T) {
	const old, tls13 = tlsv3.TlsParameters_TLSv1_0, tlsv3.TlsParameters_TLSv1_3
	all := "ECDHE-ECDSA-AES128-GCM-SHA256 ECDHE-RSA-AES128-GCM-SHA256 ECDHE-ECDSA-AES256-GCM-SHA384 ECDHE-RSA-AES256-GCM-SHA384"
	for _, c := range []struct {
		policy      Policy
		least, most tlsv3.TlsParameters_TlsProtocol
		ciphers     string
		curves      string
		want        string
	}{
		{None, unset, unset, "AES128-SHA", "X25519", "TLS_AUTO TLS_AUTO [AES128-SHA] [X25519] []"},
		{FIPS1402, unset, unset, "", "", "TLSv1_2 TLSv1_2 [" + all + "] [P-256] []"},
		{FIPS1402, tls13, tls13, "AES128-SHA", "X25519", "TLSv1_2 TLSv1_2 [" + all + "] [P-256] []"},
		{
			FIPS1402, old, old, "ECDHE-RSA-CHACHA20-POLY1305 ECDHE-RSA-AES256-GCM-SHA384", "X25519 P-256",
			"TLSv1_2 TLSv1_2 [ECDHE-RSA-AES256-GCM-SHA384] [P-256] []",
		},
		{FIPS1403, unset, unset, "", "", "TLSv1_2 TLSv1_3 [" + all + "] [P-256 P-384] [FIPS_202205]"},
		{FIPS1403, tls13, unset, "", "X25519 P-384", "TLSv1_3 TLSv1_3 [" + all + "] [P-384] [FIPS_202205]"},
		{FIPS1403, old, tls12, "", "", "TLSv1_2 TLSv1_2 [" + all + "] [P-256 P-384] [FIPS_202205]"},
		{FIPS1403, old, old, "", "", "TLSv1_2 TLSv1_2 [" + all + "] [P-256 P-384] [FIPS_202205]"},
		{PQC, unset, unset, "AES128-SHA", "X25519 P-256", "TLSv1_3 TLSv1_3 [" + all + "] [X25519MLKEM768] []"},
		{PQC, tls12, tls12, "", "X25519 X25519MLKEM768", "TLSv1_3 TLSv1_3 [" + all + "] [X25519MLKEM768] []"},
	} {
		p := &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: c.least, TlsMaximumProtocolVersion: c.most, CipherSuites: strings.Fields(c.ciphers),
			EcdhCurves: strings.Fields(c.curves),
		}
		contexts := []*tlsv3.CommonTlsContext{{TlsParams: p}}
		if c.least == unset && c.most == unset && c.ciphers+c.curves == "" {
			contexts = append(contexts, &tlsv3.CommonTlsContext{})
		}
		for _, x := range contexts {
			c.policy.Restrict(x)
			p := x.TlsParams
			got := fmt.Sprintf("%s %s %v %v %v", p.TlsMinimumProtocolVersion, p.TlsMaximumProtocolVersion, p.CipherSuites, p.EcdhCurves,
				p.CompliancePolicies)
			if got != c.want {
				t.Errorf("%q beside %s to %s, %q and %q:\n%s, want\n%s", c.policy, c.least, c.most, c.ciphers, c.curves, got, c.want)
			}
		}
	}
	var c tlsv3.CommonTlsContext
	if None.Restrict(&c); c.TlsParams != nil {
		t.Errorf("without a policy: %v", c.TlsParams)
	}
}

func TestIneffective(t *testing.T) {
	four := ciphers()
	for _, c := range []struct {
		policy Policy
		s      Settings
		want   []string
	}{
		{None, Settings{tls13, tls12, []string{"AES128-SHA"}, []string{"X25519"}}, nil},
		{FIPS1402, Settings{tls12, tls12, four[:1], []string{"P-256"}}, nil},
		{
			FIPS1402, Settings{tls13, tls13, []string{"AES128-SHA", "unknown", four[0]}, []string{"P-256", "P-384"}},
			[]string{"minProtocolVersion", "maxProtocolVersion", "cipherSuites[0]", "ecdhCurves[1]"},
		},
		{FIPS1403, Settings{tls12, tls13, four, []string{"P-384", "P-256"}}, nil},
		{
			FIPS1403, Settings{tls13, tls12, four[1:], []string{"X25519", "P-256"}},
			[]string{"minProtocolVersion", "maxProtocolVersion", "cipherSuites", "ecdhCurves[0]", "ecdhCurves"},
		},
		{FIPS1403, Settings{Ciphers: []string{"AES128-SHA"}}, []string{"cipherSuites[0]"}},
		{PQC, Settings{Least: tls13, Most: tls13, Curves: []string{"X25519MLKEM768"}}, nil},
		{
			PQC, Settings{tls12, tls12, four, []string{"X25519"}},
			[]string{"minProtocolVersion", "maxProtocolVersion", "cipherSuites", "ecdhCurves[0]"},
		},
	} {
		var got []string
		for _, s := range c.policy.Ineffective(c.s) {
			got = append(got, s.Field)
			if !strings.HasPrefix(s.Message, "with "+c.policy.String()+" it has no effect: ") {
				t.Error(s.Message)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q beside %v: %q, want %q", c.policy, c.s, got, c.want)
		}
	}
}

// handshake connects both sides, and returns the state of the client.
func handshake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	must.Succeed(t, err)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = conn.Write([]byte{1}) // after the handshake
			conn.Close()
		}
		accepted <- err
	}()
	conn, err := (&tls.Dialer{Config: client}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		return tls.ConnectionState{}, errors.Join(err, <-accepted)
	}
	defer conn.Close()
	_, err = io.ReadFull(conn, make([]byte, 1)) // Read may return io.EOF together with the byte
	return conn.(*tls.Conn).ConnectionState(), errors.Join(err, <-accepted)
}

func selfSigned(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
