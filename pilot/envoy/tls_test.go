package envoy

import (
	"fmt"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// TestRestrict: names that Envoy does not know are left out. If none of them is left, what Envoy does by default does
// not take their place.
func TestRestrict(t *testing.T) {
	for _, c := range []struct {
		ciphers, curves []string
		want            string
	}{
		{nil, nil, "TLSv1_2 [] []"},
		{[]string{"none", "AES128-SHA"}, []string{"P-384", "none"}, "TLSv1_2 [AES128-SHA] [P-384]"},
		{[]string{"none", " AES128-SHA"}, nil, "TLSv1_3 [] []"},
		{nil, []string{"secp521r1"}, "TLSv1_2 [] [P-256]"},
	} {
		p := &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2}
		Restrict(p, c.ciphers, c.curves)
		if got := fmt.Sprint(p.TlsMinimumProtocolVersion, p.CipherSuites, p.EcdhCurves); got != c.want {
			t.Errorf("%q and %q: %s, want %s", c.ciphers, c.curves, got, c.want)
		}
	}
}
