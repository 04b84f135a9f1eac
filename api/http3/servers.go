package http3

import (
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Variable is the environment variable that enables HTTP/3.
const Variable = "PILOT_ENABLE_QUIC_LISTENERS"

// Terminates reports whether a server terminates the TLS of HTTPS. Only such a server can serve HTTP/3.
func Terminates(s *networkingv1alpha3.Server) bool {
	if s.GetTls() == nil || !strings.EqualFold(s.GetPort().GetProtocol(), "HTTPS") {
		return false
	}
	switch s.Tls.Mode {
	case networkingv1alpha3.ServerTLSSettings_PASSTHROUGH, networkingv1alpha3.ServerTLSSettings_AUTO_PASSTHROUGH:
		return false
	}
	return true
}

// Refusal returns why a server for which Terminates is true does not serve HTTP/3: the field whose setting does not
// work over QUIC. Both are empty if it does.
func Refusal(s *networkingv1alpha3.Server) (field, reason string) {
	if strings.HasPrefix(s.GetBind(), "unix://") {
		return "bind", "QUIC comes over UDP, and never to a Unix socket"
	}
	if DemandsCertificates(s) {
		return "tls.mode", "every client has to show a certificate, which not all supported proxies ask for over QUIC"
	}
	if list := s.GetTls().GetAlpnProtocols(); len(list) > 0 && !slices.Contains(list, "h3") {
		return "tls.alpnProtocols", "over QUIC clients would agree on h3, which the list does not have"
	}
	switch s.GetTls().GetMaxProtocolVersion() {
	case networkingv1alpha3.ServerTLSSettings_TLS_AUTO, networkingv1alpha3.ServerTLSSettings_TLSV1_3:
		return "", ""
	}
	return "tls.maxProtocolVersion", "QUIC has TLS 1.3 alone"
}

// DemandsCertificates reports whether a server requires client certificates.
func DemandsCertificates(s *networkingv1alpha3.Server) bool {
	switch s.GetTls().GetMode() {
	case networkingv1alpha3.ServerTLSSettings_MUTUAL, networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL:
		return true
	}
	return false
}

// Strict has the hosts of servers that require client certificates, by the port of the servers or by the port of their
// workload. It is not safe for concurrent use.
type Strict map[uint32]*names.HostIndex[struct{}]

// Add adds the hosts of a server on a port, if it requires client certificates.
func (x Strict) Add(port uint32, s *networkingv1alpha3.Server) {
	if !DemandsCertificates(s) || !Terminates(s) {
		return
	}
	if x[port] == nil {
		x[port] = &names.HostIndex[struct{}]{}
	}
	for _, h := range s.Hosts {
		x[port].Add(withoutNamespace(h), struct{}{})
	}
}

// Exposed returns a host that a server on a port would serve over QUIC by a wildcard of its own, although another
// server requires client certificates for the host and is not served over QUIC. It returns "" if there is none.
func (x Strict) Exposed(port uint32, s *networkingv1alpha3.Server) string {
	hosts := x[port]
	if hosts == nil {
		return ""
	}
	for _, p := range s.Hosts {
		pattern := withoutNamespace(p)
		for host := range hosts.Covered(pattern) {
			if host != pattern {
				return host
			}
		}
	}
	return ""
}

func withoutNamespace(host string) string {
	if _, bare, found := strings.Cut(host, "/"); found {
		host = bare
	}
	return strings.ToLower(host)
}

// Takes reports whether a server serves HTTP/3, provided that there is no other server on its port.
func Takes(s *networkingv1alpha3.Server) bool {
	field, _ := Refusal(s)
	return Terminates(s) && field == ""
}
