package envoy

import (
	"slices"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Restrict sets the cipher suites and the curves of a configuration, without names that are repeated and names that
// Envoy does not know. An empty list keeps Envoy's default. If some cipher suites are named and Envoy knows none, only
// TLS 1.3 is allowed, to which the names do not apply. That holds even if an older version is the newest one allowed,
// because no cipher suite is left for it. If some curves are named and Envoy knows none, only P-256 is allowed.
func Restrict(p *tlsv3.TlsParameters, ciphers, curves []string) {
	p.CipherSuites, p.EcdhCurves = known(ciphers, names.HasCipher), known(curves, names.HasCurve)
	if len(ciphers) > 0 && len(p.CipherSuites) == 0 {
		p.TlsMinimumProtocolVersion = tlsv3.TlsParameters_TLSv1_3
		if p.TlsMaximumProtocolVersion != tlsv3.TlsParameters_TLS_AUTO {
			p.TlsMaximumProtocolVersion = tlsv3.TlsParameters_TLSv1_3
		}
	}
	if len(curves) > 0 && len(p.EcdhCurves) == 0 {
		p.EcdhCurves = []string{"P-256"}
	}
}

func known(list []string, is func(string) bool) (out []string) {
	for _, n := range list {
		if is(n) && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// LeastVersion returns the minimum TLS version of a mesh.
func LeastVersion(c *meshv1alpha1.MeshConfig_TLSConfig) tlsv3.TlsParameters_TlsProtocol {
	switch c.GetMinProtocolVersion() {
	case meshv1alpha1.MeshConfig_TLSConfig_TLSV1_3:
		return tlsv3.TlsParameters_TLSv1_3
	case meshv1alpha1.MeshConfig_TLSConfig_TLSV1_2:
		return tlsv3.TlsParameters_TLSv1_2
	}
	return tlsv3.TlsParameters_TLS_AUTO
}
