package servers

import (
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Use is how a server handles connections.
type Use int

// Uses.
const (
	Closed          Use = iota // stays closed: it cannot be opened as configured
	PlainHTTP                  // plaintext HTTP
	SecureHTTP                 // terminates TLS and routes HTTP
	PlainTCP                   // forwards connections
	SecureTCP                  // terminates TLS and forwards connections
	Passthrough                // forwards TLS unterminated, by the server name
	AutoPassthrough            // forwards mTLS unterminated, to the cluster of the server name
)

// UseOf returns how a server handles connections. A server of TLS without settings stays closed, and so does a server
// whose TLS restrictions proxies cannot enforce.
func UseOf(s *networkingv1alpha3.Server) Use {
	p := strings.ToUpper(s.GetPort().GetProtocol())
	mode := s.GetTls().GetMode()
	switch {
	case p == "UDP":
		return Closed
	case slices.Contains([]string{"HTTP", "HTTP2", "GRPC", "GRPC-WEB", "HTTP_PROXY"}, p):
		return PlainHTTP
	case mode == networkingv1alpha3.ServerTLSSettings_AUTO_PASSTHROUGH:
		return AutoPassthrough
	case p != "HTTPS" && p != "TLS": // a protocol without a name here is forwarded
		return PlainTCP
	case s.GetTls() == nil:
		return Closed
	case mode == networkingv1alpha3.ServerTLSSettings_PASSTHROUGH:
		return Passthrough
	case Unenforced(s.GetTls()) != "":
		return Closed
	case p == "HTTPS":
		return SecureHTTP
	}
	return SecureTCP
}

// Unenforced returns the field of a server that terminates TLS which proxies cannot enforce, or "": cipher suites or
// curves that are all unknown, or names in certificates of clients that show none.
func Unenforced(t *networkingv1alpha3.ServerTLSSettings) (field string) {
	mode := t.GetMode()
	switch {
	case mode == networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL: // the mesh's own settings apply
		return ""
	case len(t.GetCipherSuites()) > 0 && !slices.ContainsFunc(t.GetCipherSuites(), names.HasCipher):
		return "cipherSuites"
	case len(t.GetEcdhCurves()) > 0 && !slices.ContainsFunc(t.GetEcdhCurves(), names.HasCurve):
		return "ecdhCurves"
	case mode == networkingv1alpha3.ServerTLSSettings_SIMPLE && len(t.GetSubjectAltNames()) > 0:
		return "subjectAltNames"
	}
	return ""
}

// HTTP reports whether requests are routed.
func (u Use) HTTP() bool { return u == PlainHTTP || u == SecureHTTP }

// TerminatesTLS reports whether clients see a certificate of the gateway.
func (u Use) TerminatesTLS() bool { return u == SecureHTTP || u == SecureTCP }

// TLS reports whether clients speak TLS, terminated here or elsewhere.
func (u Use) TLS() bool { return u != PlainHTTP && u != PlainTCP }

// String says what clients speak.
func (u Use) String() string {
	return [...]string{"a protocol without connections", "plaintext HTTP", "HTTPS", "plaintext TCP", "TLS",
		"TLS passed through", "mutual TLS passed through"}[u]
}
