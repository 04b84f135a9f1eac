package analysis

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/api/servers"
)

// tlsFit reports DestinationRules whose TLS does not fit: TLS of the mesh for Pods without a proxy, and TLS around the
// TLS that clients send.
func (a *analysis) tlsFit() {
	requests := a.requestDestinations()
	compared := comparisons{most: maxComparisons}
	for _, o := range a.rules {
		compared.begin()
		for policy := range tlsPolicies(o.Spec.(*networkingv1.DestinationRule)) {
			a.mutualWithoutProxy(o, policy, &compared)
			a.doubleTLS(o, policy, requests, &compared)
			a.outsideMutual(o, policy)
			a.originatedToProxies(o, policy, &compared)
			a.missingSNI(o, policy, &compared)
			a.otherIdentities(o, policy, &compared)
		}
		a.proxyHeaders(o)
		a.halfRead(o, compared)
	}
}

// outsideMutual reports a rule with mutual TLS of the mesh for a host outside the mesh.
func (a *analysis) outsideMutual(o *kinds.Object, policy trafficPolicy) {
	name := names.FQDN(o.Spec.(*networkingv1.DestinationRule).Host, o.Namespace, a.domain)
	for _, h := range a.hosts[name] {
		spec, is := h.object.Spec.(*networkingv1.ServiceEntry)
		if !is || spec.Location != networkingv1alpha3.ServiceEntry_MESH_EXTERNAL || spec.WorkloadSelector != nil {
			continue
		}
		for _, port := range h.ports {
			if tls, at := policy.tls(port); tls.GetMode() == networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL {
				a.report(o, diag.Info, codeTLSMismatch, at, "write SIMPLE, or MUTUAL with certificates; or give the entry location MESH_INTERNAL",
					"%s is outside the mesh, and mode ISTIO_MUTUAL takes only servers with a certificate of the mesh: "+
						"with others TLS handshakes fail, and requests get 503", h.object)
				return
			}
		}
	}
}

// originatedToProxies reports a rule with mode SIMPLE for a port of HTTP whose workloads all have a proxy, which takes
// only mutual TLS of the mesh, or plaintext.
func (a *analysis) originatedToProxies(o *kinds.Object, policy trafficPolicy, compared *comparisons) {
	if !policy.says(networkingv1alpha3.ClientTLSSettings_SIMPLE) {
		return
	}
	for h := range a.ruledBy(o) {
		for p := range a.portsOfProxies(h, policy.labels) {
			if !compared.more() {
				return
			}
			tls, at := policy.tls(uint32(p.Port)) //nolint:gosec // validated
			if tls.GetMode() != networkingv1alpha3.ClientTLSSettings_SIMPLE {
				continue
			}
			a.report(o, diag.Warning, codeTLSMismatch, at, "remove tls, so that proxies use mutual TLS of the mesh",
				"port %d of %s is HTTP, and its workloads have a proxy, which takes mutual TLS of the mesh and plaintext: mode SIMPLE is neither, "+
					"and requests get 503", p.Port, h.name)
			return
		}
	}
}

// portsOfProxies yields the ports of HTTP of a Service whose workloads, with some labels, all have a proxy that takes
// the port and is of no Gateway. It yields none in a namespace with Sidecars that have ingress listeners, which may
// terminate TLS.
func (a *analysis) portsOfProxies(h *host, labels map[string]string) iter.Seq[*corev1.ServicePort] {
	return func(yield func(*corev1.ServicePort) bool) {
		service, is := h.object.Spec.(*corev1.Service)
		if !is || len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName ||
			len(a.ingressPorts()[h.object.Namespace]) > 0 || a.leadsToGateway(h.object) {
			return
		}
		s := a.selection(h.object.Namespace, joined(service.Spec.Selector, labels))
		if !s.proxied || s.bare || s.machine || s.bypassing != nil {
			return
		}
		for i := range service.Spec.Ports {
			if p := &service.Spec.Ports[i]; protocols.OfPort(p).IsHTTP() && !yield(p) {
				return
			}
		}
	}
}

// proxyHeaders reports a rule that makes proxies send PROXY headers to proxies of sidecars, which do not read them.
func (a *analysis) proxyHeaders(o *kinds.Object) {
	spec := o.Spec.(*networkingv1.DestinationRule)
	at := func(policy *networkingv1alpha3.TrafficPolicy, field string, labels map[string]string) {
		if policy.GetProxyProtocol() == nil {
			return
		}
		for _, h := range a.hosts[names.FQDN(spec.Host, o.Namespace, a.domain)] {
			for p := range a.portsOfProxies(h, labels) {
				a.report(o, diag.Warning, codeTLSMismatch, field+".trafficPolicy.proxyProtocol", "remove it",
					"port %d of %s is HTTP, and its workloads have a proxy, which takes the PROXY header for the request: requests get 400",
					p.Port, h.name)
				return
			}
		}
	}
	at(spec.TrafficPolicy, "spec", nil)
	for i, s := range spec.Subsets {
		at(s.TrafficPolicy, indexed("spec.subsets", i), s.Labels)
	}
}

// otherIdentities reports a rule with mutual TLS of the mesh whose subjectAltNames have no identity of the workloads of
// a Service, all of which have a proxy.
func (a *analysis) otherIdentities(o *kinds.Object, policy trafficPolicy, compared *comparisons) {
	for _, h := range a.hosts[names.FQDN(o.Spec.(*networkingv1.DestinationRule).Host, o.Namespace, a.domain)] {
		service, is := h.object.Spec.(*corev1.Service)
		if !is || len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		s := a.selection(h.object.Namespace, policy.selector(service.Spec.Selector))
		if s.bare || s.machine || len(s.accounts) == 0 {
			continue
		}
		for _, port := range h.ports {
			if !compared.more() {
				return
			}
			tls, at := policy.tls(port)
			wanted := tls.GetSubjectAltNames()
			if tls.GetMode() != networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL || len(wanted) == 0 {
				continue
			}
			var own []string
			for _, account := range slices.Sorted(maps.Keys(s.accounts)) {
				own = append(own, identity.ID{TrustDomain: a.mesh.GetTrustDomain(), Namespace: h.object.Namespace, ServiceAccount: account}.String())
			}
			if !slices.ContainsFunc(own, func(id string) bool { return slices.Contains(wanted, id) }) {
				a.report(o, diag.Warning, codeTLSMismatch, strings.TrimSuffix(at, ".mode")+".subjectAltNames", "write "+own[0]+", or remove it",
					"no workload of %s has one of these names: their identities are %s, TLS handshakes fail, and requests get 503", h.name,
					listed(own))
				return
			}
		}
	}
}

// missingSNI reports a rule with mutual TLS of the mesh and without a server name for a Gateway all of whose servers of
// that port name hosts: without one, proxies send the name of their cluster.
func (a *analysis) missingSNI(o *kinds.Object, policy trafficPolicy, compared *comparisons) {
	if !policy.says(networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL) {
		return
	}
	for _, h := range a.hosts[names.FQDN(o.Spec.(*networkingv1.DestinationRule).Host, o.Namespace, a.domain)] {
		service, is := h.object.Spec.(*corev1.Service)
		if !is || len(service.Spec.Selector) == 0 {
			continue
		}
		for _, port := range h.ports {
			if !compared.more() {
				return
			}
			tls, at := policy.tls(port)
			if tls.GetMode() != networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL || tls.Sni != "" {
				continue
			}
			sni := names.SNICluster(port, policy.subset, h.name)
			covers := func(host string) bool { return names.Covers(host, sni) }
			if s := a.serversNamed(h.object.Namespace, service.Spec.Selector, port); s.gateway != nil && !slices.ContainsFunc(s.hosts, covers) {
				a.report(o, diag.Warning, codeTLSMismatch, strings.TrimSuffix(at, "mode")+"sni",
					"write sni: "+cmp.Or(lone(s.hosts), "HOST, one of them"),
					"the servers of %s at port %d take only connections for %s, and without sni proxies send %s: they are closed, and requests get 503",
					s.gateway, port, listed(s.hosts), sni)
				return
			}
		}
	}
}

// lone returns the only element of a list, or "".
func lone(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	return ""
}

// namedKey is the namespace and the selector of a Service, and a port.
type namedKey struct {
	selectionKey
	port uint32
}

// namedServers are the servers of Gateways at a port that take connections by their server name alone.
type namedServers struct {
	gateway *kinds.Object // the first Gateway; nil if no server has the port, or one takes other connections too
	hosts   []string
}

// serversNamed returns the servers at a port of the Gateways of the workloads that a Service selects.
func (a *analysis) serversNamed(namespace string, selector map[string]string, port uint32) *namedServers {
	key := namedKey{selectionKey{namespace, written(selector)}, port}
	out := a.named[key]
	if out != nil {
		return out
	}
	out = &namedServers{}
	lists.Put(&a.named, key, out)
	for o := range a.sharing(kinds.Gateway, everyNamespace, selector) {
		spec := o.Spec.(*networkingv1.Gateway)
		if !kinds.GatewayReaches(o, namespace, a.options.ScopedGateways) || !kinds.Selects(spec.Selector, selector) {
			continue
		}
		for _, s := range spec.Servers {
			if s.GetPort().GetNumber() != port {
				continue
			}
			for _, text := range s.Hosts {
				_, host := serverHost(o, text)
				out.hosts = append(out.hosts, host)
			}
			if !servers.UseOf(s).TLS() || s.GetTls().GetMode() == networkingv1alpha3.ServerTLSSettings_AUTO_PASSTHROUGH ||
				slices.Contains(out.hosts, "*") {
				*out = namedServers{}
				return out
			}
			out.gateway = cmp.Or(out.gateway, o)
		}
	}
	slices.Sort(out.hosts)
	out.hosts = slices.Compact(out.hosts)
	return out
}

// mutualWithoutProxy reports a rule with mutual TLS of the mesh for Services all of whose Pods have no proxy.
func (a *analysis) mutualWithoutProxy(o *kinds.Object, policy trafficPolicy, compared *comparisons) {
	var without []string
	var at string // the first field that says so
	for h := range a.ruledBy(o) {
		service, ok := h.object.Spec.(*corev1.Service)
		if !ok || len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		if mode, _ := a.peerMode(h.object.Namespace); mode == securityv1.PeerAuthentication_MutualTLS_DISABLE {
			continue // another finding says so
		}
		for _, port := range h.ports {
			if !compared.more() {
				return
			}
			tls, field := policy.tls(port)
			if tls.GetMode() != networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL {
				continue
			}
			if s := a.selection(h.object.Namespace, policy.selector(service.Spec.Selector)); s.workloads > 0 && !s.proxied {
				without, at = append(without, h.name), cmp.Or(at, field)
			}
			break
		}
	}
	if len(without) > 0 {
		a.report(o, diag.Warning, codeTLSMismatch, at,
			"remove tls, so that proxies use TLS where there is a proxy; or add a DestinationRule with mode DISABLE for these hosts",
			"mode ISTIO_MUTUAL is for workloads with a proxy, and no Pod of %s has one: TLS handshakes with them fail, and requests get 503",
			listed(without))
	}
}

// requestDestinations returns the destinations of HTTP routes. Proxies have plaintext requests for them, whatever the
// protocol of the port.
func (a *analysis) requestDestinations() map[hostPort]bool {
	to := map[hostPort]bool{}
	for o, h := range a.httpRules {
		for _, r := range h.Route {
			d := r.GetDestination()
			to[hostPort{a.resolved(names.Destination(d.GetHost(), o.Namespace, a.domain)), d.GetPort().GetNumber()}] = true
		}
	}
	return to
}

// doubleTLS reports a rule that makes proxies begin TLS on a port of HTTPS or TLS, where clients have begun it already.
func (a *analysis) doubleTLS(o *kinds.Object, policy trafficPolicy, requests map[hostPort]bool, compared *comparisons) {
	host := names.FQDN(o.Spec.(*networkingv1.DestinationRule).Host, o.Namespace, a.domain)
	for _, p := range a.protocolsOfHost(host).tlsPorts {
		if !compared.more() {
			return
		}
		tls, at := policy.tls(p)
		if !originates(tls) || requests[hostPort{host, p}] || requests[hostPort{host, 0}] {
			continue
		}
		a.report(o, diag.Info, codeTLSMismatch, at, "remove it, or give the port the protocol HTTP if clients are to send plaintext",
			"port %d of %s says that clients send TLS: if they do, mode %s puts another TLS around it, and the server reads only the outer one",
			p, host, tls.GetMode())
		return
	}
}

// originates reports whether a proxy with these settings begins TLS that is not of the mesh.
func originates(t *networkingv1alpha3.ClientTLSSettings) bool {
	return t.GetMode() == networkingv1alpha3.ClientTLSSettings_SIMPLE || t.GetMode() == networkingv1alpha3.ClientTLSSettings_MUTUAL
}
