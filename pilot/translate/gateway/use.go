package gateway

import (
	"iter"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/servers"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// Use returns how the server handles connections.
func (s Server) Use() servers.Use { return servers.UseOf(s.Server) }

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
