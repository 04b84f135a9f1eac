package gateway

import (
	"iter"
	"slices"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Use is what a server does with connections.
type Use int

// Uses.
const (
	Closed          Use = iota // nothing: it cannot be opened
	PlainHTTP                  // takes HTTP
	SecureHTTP                 // terminates TLS and takes HTTP
	PlainTCP                   // forwards connections
	SecureTCP                  // terminates TLS and forwards connections
	Passthrough                // forwards TLS as it is, by the server name
	AutoPassthrough            // forwards mTLS as it is, to the cluster that has the server name for its own
)

// UseOf returns what a server does with connections. A server that should speak TLS and has no settings for it stays
// closed.
func UseOf(s *networkingv1alpha3.Server) Use {
	p := registry.ParseProtocolOr(s.GetPort().GetProtocol(), registry.TCP)
	mode := s.GetTls().GetMode()
	switch {
	case p == registry.UDP:
		return Closed
	case p.IsHTTP():
		return PlainHTTP
	case mode == networkingv1alpha3.ServerTLSSettings_AUTO_PASSTHROUGH:
		return AutoPassthrough
	case p != registry.HTTPS && p != registry.TLS:
		return PlainTCP
	case s.GetTls() == nil:
		return Closed
	case mode == networkingv1alpha3.ServerTLSSettings_PASSTHROUGH:
		return Passthrough
	case p == registry.HTTPS:
		return SecureHTTP
	}
	return SecureTCP
}

// Use returns what the server does with connections.
func (s Server) Use() Use { return UseOf(s.Server) }

// HTTP reports whether requests are routed.
func (u Use) HTTP() bool { return u == PlainHTTP || u == SecureHTTP }

// TerminatesTLS reports whether clients see a certificate of the gateway.
func (u Use) TerminatesTLS() bool { return u == SecureHTTP || u == SecureTCP }

// TLS reports whether clients speak TLS, whoever terminates it.
func (u Use) TLS() bool { return u != PlainHTTP && u != PlainTCP }

// ServerNames returns the TLS server names that a server takes, as they are written.
func (s Server) ServerNames() []string {
	var list []string
	for _, h := range s.EachHost {
		list = append(list, h)
	}
	return list
}

// Reader is what VirtualServices looks up.
type Reader interface {
	HostsOfGateway(name, proxyNamespace string) iter.Seq[string]
	VirtualServicesOfGatewayHost(name, host, proxyNamespace string) []*scope.VirtualService
	CompareVirtualServices(namespace string, a, b *scope.VirtualService) int
}

// Name returns "namespace/name" of the server's Gateway.
func (s Server) Name() string { return s.Gateway.Namespace + "/" + s.Gateway.Name }

// VirtualServices returns the VirtualServices with routes for connections whose hosts overlap with those of the server
// and that may use them, by precedence.
func (s Server) VirtualServices(r Reader, c cohort.Client) []*scope.VirtualService {
	var all []*scope.VirtualService
	seen := ""
	for host := range r.HostsOfGateway(s.Name(), c.Namespace) { // those of one host follow each other
		if host == seen {
			continue
		}
		seen = host
		for _, vs := range r.VirtualServicesOfGatewayHost(s.Name(), host, c.Namespace) {
			if len(vs.Spec.Tls)+len(vs.Spec.Tcp) > 0 && s.opens(vs.Namespace, host) {
				all = append(all, vs)
			}
		}
	}
	slices.SortFunc(all, func(a, b *scope.VirtualService) int { return r.CompareVirtualServices(c.Namespace, a, b) })
	return slices.Compact(all)
}

// opens reports whether a VirtualService of a namespace may use a host of the server.
func (s Server) opens(namespace, host string) bool {
	for ns, h := range s.EachHost {
		if (ns == "*" || ns == namespace) && names.Overlap(h, host) {
			return true
		}
	}
	return false
}
