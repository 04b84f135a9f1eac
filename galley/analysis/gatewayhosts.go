package analysis

import (
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// openedTo is a Gateway and a namespace of VirtualServices that the Gateway has hosts for; "*" is any namespace.
type openedTo struct {
	gateway   *kinds.Object
	namespace string
}

// gatewayHosts reports hosts of VirtualServices, and of routes of the Gateway API, that no server of their Gateway has,
// so that the gateway never gets a request for them. A name without a dot stands for the name of a Service.
func (a *analysis) gatewayHosts() {
	hosts := map[openedTo]*names.HostIndex[struct{}]{}
	for _, o := range a.of(kinds.Gateway) {
		for _, s := range o.Spec.(*networkingv1.Gateway).Servers {
			for _, text := range s.Hosts {
				ns, h := serverHost(o, text)
				to := openedTo{o, ns}
				if hosts[to] == nil {
					hosts[to] = &names.HostIndex[struct{}]{}
				}
				hosts[to].Add(h, struct{}{})
			}
		}
	}
	for _, o := range a.judged {
		for i, written := range o.Spec.(*networkingv1.VirtualService).Hosts {
			name := names.FQDN(written, o.Namespace, a.domain)
			gateways := gatewaysOf(o)
			if !strings.ContainsAny(written, ".*") && len(a.hosts[name]) == 0 && a.failing() == diag.Error &&
				!slices.Contains(gateways, meshGateway) {
				a.report(o, diag.Warning, codeUnknownHost, indexed("spec.hosts", i),
					"write the whole name that clients call, such as "+written+".example.com",
					"the host %s stands for %s, which no Service has: the gateway takes these routes only for requests to that name", written, name)
				continue
			}
			for _, g := range gateways {
				gateway := a.gatewayNamed(g)
				if gateway == nil || hosts[openedTo{gateway, "*"}].Overlaps(name) || hosts[openedTo{gateway, o.Namespace}].Overlaps(name) {
					continue
				}
				a.report(o, diag.Warning, codeGatewayHost, indexed("spec.hosts", i), "add the host to a server of the Gateway, or name another Gateway",
					"no server of %s has the host %s for namespace %s: the gateway takes no requests for it", gateway, name, o.Namespace)
			}
		}
	}
	for _, o := range a.of(kinds.HTTPRoute) {
		spec := &o.Spec.(*gatewayv1.HTTPRoute).Spec
		a.listenerHosts(o, spec.ParentRefs, spec.Hostnames)
	}
	for _, o := range a.of(kinds.GRPCRoute) {
		spec := &o.Spec.(*gatewayv1.GRPCRoute).Spec
		a.listenerHosts(o, spec.ParentRefs, spec.Hostnames)
	}
}

// listenerHosts reports hostnames of a route that no listener of its parents has, although another hostname is served.
// A route without such a hostname does not attach, which the finding about its parent says. Routes with parents other
// than Gateways are left out.
func (a *analysis) listenerHosts(o *kinds.Object, parents []gatewayv1.ParentReference, hostnames []gatewayv1.Hostname) {
	var served []string
	for _, p := range parents {
		namespace := o.Namespace
		if p.Namespace != nil {
			namespace = string(*p.Namespace)
		}
		gateway := a.byKey[kinds.Key{Kind: kinds.KubeGateway, Namespace: namespace, Name: string(p.Name)}]
		if gateway == nil || p.Kind != nil && *p.Kind != "Gateway" {
			return
		}
		for _, l := range gateway.Spec.(*gatewayv1.Gateway).Spec.Listeners {
			if p.SectionName != nil && *p.SectionName != l.Name || p.Port != nil && *p.Port != l.Port {
				continue
			}
			if l.Hostname == nil || *l.Hostname == "" {
				return
			}
			served = append(served, string(*l.Hostname))
		}
	}
	var missing []int
	for i, h := range hostnames {
		if !slices.ContainsFunc(served, func(s string) bool { return names.Covers(s, string(h)) || names.Covers(string(h), s) }) {
			missing = append(missing, i)
		}
	}
	if len(missing) == len(hostnames) {
		return
	}
	for _, i := range missing {
		a.report(o, diag.Warning, codeGatewayHost, indexed("spec.hostnames", i), "add a listener with the host, or remove it from the route",
			"no listener of the parents has the host %s, but only %s: the gateway takes no requests for it", hostnames[i], listed(served))
	}
}
