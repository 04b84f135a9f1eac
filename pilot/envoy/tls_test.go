package envoy

import (
	"fmt"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// TestRestrict: names that Envoy does not know are left out. If none of them is left, what Envoy does by default does
// not take their place.
func TestRestrict(t *testing.T) {
	const auto, old, newest = tlsv3.TlsParameters_TLS_AUTO, tlsv3.TlsParameters_TLSv1_2, tlsv3.TlsParameters_TLSv1_3
	for _, c := range []struct {
		most            tlsv3.TlsParameters_TlsProtocol
		ciphers, curves []string
		want            string
	}{
		{auto, nil, nil, "TLSv1_2 TLS_AUTO [] []"},
		{auto, []string{"none", "AES128-SHA"}, []string{"P-384", "none"}, "TLSv1_2 TLS_AUTO [AES128-SHA] [P-384]"},
		{auto, []string{"none", " AES128-SHA"}, nil, "TLSv1_3 TLS_AUTO [] []"},
		{newest, []string{"none"}, nil, "TLSv1_3 TLSv1_3 [] []"},
		{old, []string{"none"}, nil, "TLSv1_3 TLSv1_3 [] []"}, // Envoy could speak nothing from 1.3 to 1.2
		{old, []string{"AES128-SHA"}, nil, "TLSv1_2 TLSv1_2 [AES128-SHA] []"},
		{auto, []string{"AES128-SHA", "AES128-SHA"}, []string{"P-384", "X25519", "P-384"}, "TLSv1_2 TLS_AUTO [AES128-SHA] [P-384 X25519]"},
		{auto, nil, []string{"secp521r1"}, "TLSv1_2 TLS_AUTO [] [P-256]"},
	} {
		p := &tlsv3.TlsParameters{TlsMinimumProtocolVersion: old, TlsMaximumProtocolVersion: c.most}
		Restrict(p, c.ciphers, c.curves)
		if got := fmt.Sprint(p.TlsMinimumProtocolVersion, " ", p.TlsMaximumProtocolVersion, " ", p.CipherSuites, p.EcdhCurves); got != c.want {
			t.Errorf("%s, %q and %q: %s, want %s", c.most, c.ciphers, c.curves, got, c.want)
		}
	}
}
