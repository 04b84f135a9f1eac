package envoy

import (
	"slices"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// HasCipher reports whether Envoy knows a cipher suite of TLS 1.2. It rejects a listener that names another one.
func HasCipher(name string) bool {
	switch name {
	case "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
		"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA",
		"ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA", "AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA":
		return true
	}
	return false
}

// Ciphers returns the cipher suites that Envoy knows.
func Ciphers(list []string) []string { return known(list, HasCipher) }

// HasCurve reports whether Envoy knows a curve for key exchanges. It rejects what names another one.
func HasCurve(name string) bool {
	switch name {
	case "P-256", "P-384", "P-521", "X25519", "X25519MLKEM768":
		return true
	}
	return false
}

// Curves returns the curves that Envoy knows.
func Curves(list []string) []string { return known(list, HasCurve) }

func known(list []string, is func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(list), func(n string) bool { return !is(n) })
}

// LeastVersion returns the oldest version of TLS that a mesh takes.
func LeastVersion(c *meshv1alpha1.MeshConfig_TLSConfig) tlsv3.TlsParameters_TlsProtocol {
	switch c.GetMinProtocolVersion() {
	case meshv1alpha1.MeshConfig_TLSConfig_TLSV1_3:
		return tlsv3.TlsParameters_TLSv1_3
	case meshv1alpha1.MeshConfig_TLSConfig_TLSV1_2:
		return tlsv3.TlsParameters_TLSv1_2
	}
	return tlsv3.TlsParameters_TLS_AUTO
}
