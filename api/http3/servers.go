package http3

import (
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
)

// Variable is the variable of the environment that asks for HTTP/3.
const Variable = "PILOT_ENABLE_QUIC_LISTENERS"

// Terminates reports whether a server is for HTTPS and ends its TLS: only such a server can take HTTP/3.
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

// Refusal returns why a server that Terminates does not take HTTP/3: over QUIC what the field says could not be kept.
// Both are empty for one that does.
func Refusal(s *networkingv1alpha3.Server) (field, reason string) {
	if strings.HasPrefix(s.GetBind(), "unix://") {
		return "bind", "QUIC comes over UDP, and never to a Unix socket"
	}
	switch s.GetTls().GetMode() {
	case networkingv1alpha3.ServerTLSSettings_MUTUAL, networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL:
		return "tls.mode", "every client has to show a certificate, which not all supported proxies ask for over QUIC"
	}
	switch s.GetTls().GetMaxProtocolVersion() {
	case networkingv1alpha3.ServerTLSSettings_TLS_AUTO, networkingv1alpha3.ServerTLSSettings_TLSV1_3:
		return "", ""
	}
	return "tls.maxProtocolVersion", "QUIC has TLS 1.3 alone"
}

// Takes reports whether a server takes HTTP/3.
func Takes(s *networkingv1alpha3.Server) bool {
	field, _ := Refusal(s)
	return Terminates(s) && field == ""
}
