package compliance

import (
	"slices"
	"strings"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// Restrict limits the parameters of a TLS context of Envoy to the policy. It adds parameters to a context without any.
// A list of which the policy allows nothing becomes the list of the policy.
func (p Policy) Restrict(c *tlsv3.CommonTlsContext) {
	if p == None {
		return
	}
	if c.TlsParams == nil {
		c.TlsParams = &tlsv3.TlsParameters{}
	}
	t := c.TlsParams
	low, high := p.versions()
	t.TlsMinimumProtocolVersion = min(max(t.TlsMinimumProtocolVersion, low), high)
	if t.TlsMaximumProtocolVersion == unset {
		t.TlsMaximumProtocolVersion = high
	}
	t.TlsMaximumProtocolVersion = min(max(t.TlsMaximumProtocolVersion, t.TlsMinimumProtocolVersion), high)
	t.CipherSuites, t.EcdhCurves = within(t.CipherSuites, ciphers()), within(t.EcdhCurves, p.curves())
	if p == FIPS1403 {
		// Envoy applies it last, with all that it allows. No other parameter keeps other cipher suites out of TLS 1.3.
		t.CompliancePolicies = []tlsv3.TlsParameters_CompliancePolicy{tlsv3.TlsParameters_FIPS_202205}
	}
}

// within returns the names in a list that are allowed, in their order, or all that are allowed if there are none.
func within(list, allowed []string) []string {
	kept := slices.DeleteFunc(slices.Clone(list), func(name string) bool { return !slices.Contains(allowed, name) })
	if len(kept) == 0 {
		return allowed
	}
	return kept
}

// GoogleGRPC returns the environment variables that Envoy's second gRPC client needs, the library of Google, which an
// EnvoyFilter may choose. They limit its cipher suites of TLS 1.2.
func (p Policy) GoogleGRPC() []string {
	if p != FIPS1402 && p != FIPS1403 {
		return nil
	}
	return []string{"GRPC_SSL_CIPHER_SUITES=" + strings.Join(ciphers(), ":")}
}
