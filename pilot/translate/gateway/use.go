package gateway

import (
	"iter"
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/registry"
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
	case Unenforced(s.GetTls()) != "":
		return Closed
	case p == registry.HTTPS:
		return SecureHTTP
	}
	return SecureTCP
}

// Unenforced returns the field of a server that terminates TLS which proxies cannot enforce, or "": cipher suites that
// are all unknown, or names in certificates of clients that show none.
func Unenforced(t *networkingv1alpha3.ServerTLSSettings) (field string) {
	mode := t.GetMode()
	switch {
	case mode == networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL: // the mesh's own settings apply
		return ""
	case len(t.GetCipherSuites()) > 0 && !slices.ContainsFunc(t.GetCipherSuites(), names.HasCipher):
		return "cipherSuites"
	case mode == networkingv1alpha3.ServerTLSSettings_SIMPLE && len(t.GetSubjectAltNames()) > 0:
		return "subjectAltNames"
	}
	return ""
}

// Use returns how the server handles connections.
func (s Server) Use() Use { return UseOf(s.Server) }

// HTTP reports whether requests are routed.
func (u Use) HTTP() bool { return u == PlainHTTP || u == SecureHTTP }

// TerminatesTLS reports whether clients see a certificate of the gateway.
func (u Use) TerminatesTLS() bool { return u == SecureHTTP || u == SecureTCP }

// TLS reports whether clients speak TLS, terminated here or elsewhere.
func (u Use) TLS() bool { return u != PlainHTTP && u != PlainTCP }

// ServerNames returns the TLS server names that a server takes, as they are written.
func (s Server) ServerNames() []string {
	var list []string
	for _, h := range s.EachHost {
		list = append(list, h)
	}
	return list
}

// Reader is the part of view.Reader that VirtualServices needs.
type Reader interface {
	HostsOfGateway(name, pattern, proxyNamespace string) iter.Seq2[string, *scope.VirtualService]
	VirtualServicesOfGateway(name, host, proxyNamespace string) []*scope.VirtualService
	CompareVirtualServices(namespace string, a, b *scope.VirtualService) int
}

// Name returns "namespace/name" of the server's Gateway.
func (s Server) Name() string { return s.Gateway.Namespace + "/" + s.Gateway.Name }

// VirtualServices returns the VirtualServices with routes for connections that may use the server and whose hosts
// overlap with the server's, by precedence.
func (s Server) VirtualServices(r Reader, c cohort.Client) []*scope.VirtualService {
	open := map[string]map[string]bool{} // namespaces of each host
	for ns, host := range s.EachHost {
		lists.PutIn(open, host, ns, true)
	}
	var all []*scope.VirtualService
	seen := map[*scope.VirtualService]bool{}
	for host, spaces := range open {
		add := func(vs *scope.VirtualService) {
			if len(vs.Spec.Tls)+len(vs.Spec.Tcp) > 0 && (spaces["*"] || spaces[vs.Namespace]) && !seen[vs] {
				seen[vs] = true
				all = append(all, vs)
			}
		}
		for _, vs := range r.VirtualServicesOfGateway(s.Name(), host, c.Namespace) { // its hosts cover the server's
			add(vs)
		}
		if strings.HasPrefix(host, "*") {
			for _, vs := range r.HostsOfGateway(s.Name(), host, c.Namespace) { // the server's hosts cover its
				add(vs)
			}
		}
	}
	slices.SortFunc(all, func(a, b *scope.VirtualService) int { return r.CompareVirtualServices(c.Namespace, a, b) })
	return all
}
