package analysis

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
)

// portProtocols reports routes to ports that declare another protocol than the one that proxies send there: requests
// without TLS to ports of HTTPS or TLS, and gRPC to ports of HTTP/1. It also reports ports of ServiceEntries that
// declare HTTP where clients begin TLS.
func (a *analysis) portProtocols() {
	if a.patchesClusters() {
		return
	}
	for _, o := range a.judged {
		for i, h := range o.Spec.(*networkingv1.VirtualService).Http {
			for j, r := range h.Route {
				d := r.GetDestination()
				a.plainRequests(o, indexed(indexed("spec.http", i)+".route", j)+".destination",
					hostPort{a.resolved(names.Destination(d.GetHost(), o.Namespace, a.domain)), d.GetPort().GetNumber()})
			}
		}
	}
	for _, o := range a.of(kinds.HTTPRoute) {
		for i, r := range o.Spec.(*gatewayv1.HTTPRoute).Spec.Rules {
			for j, b := range r.BackendRefs {
				a.plainRequests(o, indexed(indexed("spec.rules", i)+".backendRefs", j), a.backend(o, &b.BackendObjectReference))
			}
		}
	}
	for _, o := range a.of(kinds.GRPCRoute) {
		for i, r := range o.Spec.(*gatewayv1.GRPCRoute).Spec.Rules {
			for j, b := range r.BackendRefs {
				field, to := indexed(indexed("spec.rules", i)+".backendRefs", j), a.backend(o, &b.BackendObjectReference)
				a.plainRequests(o, field, to)
				a.oldRequests(o, field, to)
			}
		}
	}
	for _, o := range a.of(kinds.ServiceEntry) {
		a.secureEntry(o)
	}
}

// patchesClusters reports whether an EnvoyFilter may change the protocol of clusters.
func (a *analysis) patchesClusters() bool {
	return slices.ContainsFunc(a.of(kinds.EnvoyFilter), func(o *kinds.Object) bool {
		return slices.ContainsFunc(o.Spec.(*networkingv1alpha3.EnvoyFilter).ConfigPatches,
			func(p *networkingv1alpha3.EnvoyFilter_EnvoyConfigObjectPatch) bool {
				return p.GetApplyTo() == networkingv1alpha3.EnvoyFilter_CLUSTER
			})
	})
}

// backend returns the host and port of a backend of a route of the Gateway API. The host is empty if the backend is no
// Service.
func (a *analysis) backend(o *kinds.Object, b *gatewayv1.BackendObjectReference) hostPort {
	if b.Port == nil || b.Kind != nil && *b.Kind != "Service" || b.Group != nil && *b.Group != "" {
		return hostPort{}
	}
	namespace := o.Namespace
	if b.Namespace != nil {
		namespace = string(*b.Namespace)
	}
	return hostPort{a.resolved(names.FQDN(string(b.Name), namespace, a.domain)), uint32(*b.Port)} //nolint:gosec // validated
}

// plainRequests reports a destination of requests whose port declares HTTPS or TLS, and to which proxies begin no TLS.
// A port that leads to a Gateway, or to no Pod, is left out.
func (a *analysis) plainRequests(o *kinds.Object, field string, to hostPort) {
	p := a.protocolsOfHost(to.host)
	if to.port == 0 && len(p.byNumber) == 1 && len(p.tlsPorts) > 0 {
		to.port = p.tlsPorts[0]
	}
	protocol, known := p.byNumber[to.port]
	if !p.known || !known || !protocol.IsTLS() || !a.hasServers(to.host) || a.clientTLS(to).originates {
		return
	}
	a.report(o, diag.Warning, codeProtocol, field,
		"add a DestinationRule with tls.mode SIMPLE for this port, or name the port for HTTP if its server takes plaintext",
		"port %d of %s is %s, and proxies send these requests there without TLS", to.port, to.host, protocol)
}

// oldRequests reports a destination of gRPC whose port declares HTTP/1.
func (a *analysis) oldRequests(o *kinds.Object, field string, to hostPort) {
	if a.protocolsOfHost(to.host).byNumber[to.port] != protocols.HTTP || a.mesh.GetH2UpgradePolicy() == meshv1alpha1.MeshConfig_UPGRADE ||
		a.clientTLS(to).upgrades {
		return
	}
	a.report(o, diag.Warning, codeProtocol, field, "name the port for gRPC, such as grpc-web, or set its appProtocol to grpc",
		"port %d of %s is HTTP, so proxies send HTTP/1.1 there, and gRPC needs HTTP/2: calls fail", to.port, to.host)
}

// hasServers reports whether a host is of a ServiceEntry, or of a Service that selects Pods and leads to no Gateway.
func (a *analysis) hasServers(host string) bool {
	for _, h := range a.hosts[host] {
		if s, is := h.object.Spec.(*corev1.Service); is &&
			(len(s.Spec.Selector) == 0 || !a.selects(h.object.Namespace, s.Spec.Selector) || a.leadsToGateway(h.object)) {
			return false
		}
	}
	return true
}

// clientSettings is what DestinationRules and BackendTLSPolicies say about a port, for any client.
type clientSettings struct {
	any        bool // TLS is set
	originates bool // proxies begin TLS that is not of the mesh
	upgrades   bool // HTTP/1 becomes HTTP/2
}

// merge adds other settings.
func (s *clientSettings) merge(o clientSettings) {
	s.any, s.originates, s.upgrades = s.any || o.any, s.originates || o.originates, s.upgrades || o.upgrades
}

// ruledSettings are the settings of all DestinationRules of one host or pattern.
type ruledSettings struct {
	whole clientSettings
	ports map[uint32]clientSettings
}

// clientTLS returns what rules say about a port of a host, for any client. Settings that a rule has for all of its
// ports are included for each port.
func (a *analysis) clientTLS(to hostPort) (s clientSettings) {
	for pattern := range a.patterns(to.host) {
		if r := a.settingsOf(pattern); r != nil {
			s.merge(r.whole)
			s.merge(r.ports[to.port])
		}
	}
	for _, h := range a.hosts[to.host] {
		secured := a.securedBackends()[h.object.Key]
		s.merge(clientSettings{any: secured, originates: secured})
	}
	return s
}

// settingsOf returns the settings of the rules of a host or pattern, or nil if there is no rule.
func (a *analysis) settingsOf(pattern string) *ruledSettings {
	r, rules := a.settings[pattern], a.ruled[pattern]
	if r != nil || len(rules) == 0 {
		return r
	}
	r = &ruledSettings{ports: map[uint32]clientSettings{}}
	lists.Put(&a.settings, pattern, r)
	for _, o := range rules {
		spec := o.Spec.(*networkingv1.DestinationRule)
		r.whole.upgrades = r.whole.upgrades || upgrades(spec)
		for policy := range tlsPolicies(spec) {
			if policy.Tls != nil {
				r.whole.merge(clientSettings{any: true, originates: originates(policy.Tls)})
			}
			for _, p := range policy.PortLevelSettings {
				if p.Tls != nil {
					at := r.ports[p.GetPort().GetNumber()]
					at.merge(clientSettings{any: true, originates: originates(p.Tls)})
					r.ports[p.GetPort().GetNumber()] = at
				}
			}
		}
	}
	return r
}

// upgrades reports whether a DestinationRule may make proxies send HTTP/2 to ports of HTTP/1.
func upgrades(spec *networkingv1.DestinationRule) bool {
	in := func(c *networkingv1alpha3.ConnectionPoolSettings) bool {
		return c.GetHttp().GetUseClientProtocol() ||
			c.GetHttp().GetH2UpgradePolicy() == networkingv1alpha3.ConnectionPoolSettings_HTTPSettings_UPGRADE
	}
	policy := func(p *networkingv1alpha3.TrafficPolicy) bool {
		return in(p.GetConnectionPool()) || slices.ContainsFunc(p.GetPortLevelSettings(),
			func(s *networkingv1alpha3.TrafficPolicy_PortTrafficPolicy) bool { return in(s.GetConnectionPool()) })
	}
	return policy(spec.TrafficPolicy) ||
		slices.ContainsFunc(spec.Subsets, func(s *networkingv1alpha3.Subset) bool { return policy(s.GetTrafficPolicy()) })
}

// securedBackends returns the Services and ServiceEntries that BackendTLSPolicies target.
func (a *analysis) securedBackends() map[kinds.Key]bool {
	if a.secured == nil {
		a.secured = map[kinds.Key]bool{}
		for _, o := range a.of(kinds.BackendTLSPolicy) {
			for _, t := range o.Spec.(*gatewayv1.BackendTLSPolicy).Spec.TargetRefs {
				kind := kinds.Service
				if string(t.Kind) == kinds.ServiceEntry.Name {
					kind = kinds.ServiceEntry
				}
				a.secured[kinds.Key{Kind: kind, Namespace: o.Namespace, Name: string(t.Name)}] = true
			}
		}
	}
	return a.secured
}

// secureEntry reports port 443 of a ServiceEntry outside the mesh that declares HTTP, although no rule makes proxies
// begin TLS to it: clients then call it by HTTPS.
func (a *analysis) secureEntry(o *kinds.Object) {
	const https = 443
	spec := o.Spec.(*networkingv1.ServiceEntry)
	if spec.Location != networkingv1alpha3.ServiceEntry_MESH_EXTERNAL || spec.WorkloadSelector != nil {
		return
	}
	for i, p := range spec.Ports {
		if p.Number != https || p.TargetPort != 0 && p.TargetPort != https || !protocols.Parse(p.Protocol).IsHTTP() {
			continue
		}
		if !slices.ContainsFunc(spec.Hosts, func(host string) bool { return a.clientTLS(hostPort{names.FQDN(host, "", a.domain), https}).any }) {
			a.report(o, diag.Info, codeProtocol, indexed("spec.ports", i)+".protocol",
				"write HTTPS, or add a DestinationRule with tls.mode SIMPLE for clients that send plaintext",
				"port 443 is %s here, so proxies refuse the TLS that clients of this port usually begin, and begin none themselves", p.Protocol)
		}
	}
}
