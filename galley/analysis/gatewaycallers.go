package analysis

import (
	"cmp"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"
	securityv1beta1 "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/servers"
)

// gatewayGroup is the Gateways with one selector, and with one namespace if they are limited to their own.
type gatewayGroup struct {
	first      *kinds.Object
	http       bool     // a server routes HTTP
	identities bool     // a server asks for a client's certificate
	tcp        *tcpPort // first server that does not read HTTP; nil if there is none
}

// tcpPort is a port at which proxies read no HTTP.
type tcpPort struct {
	number   uint32
	of       *kinds.Object // the Service or the Gateway
	protocol string
}

// groupsOfGateways returns the groups of the Gateways that select each workload. A Gateway without a selector is left
// out.
func (a *analysis) groupsOfGateways() map[*workload][]*gatewayGroup {
	if a.gatewayGroups != nil {
		return a.gatewayGroups
	}
	a.gatewayGroups = map[*workload][]*gatewayGroup{}
	byWorkloads := map[selectionKey]*gatewayGroup{}
	for _, o := range a.of(kinds.Gateway) {
		spec := o.Spec.(*networkingv1.Gateway)
		if len(spec.Selector) == 0 {
			continue
		}
		key, selected := a.gatewaySelection(o)
		g := byWorkloads[key]
		if g == nil {
			g = &gatewayGroup{first: o}
			byWorkloads[key] = g
			for _, ns := range selected.namespaces {
				for w := range a.selected(ns, spec.Selector) {
					a.gatewayGroups[w] = append(a.gatewayGroups[w], g)
				}
			}
		}
		for _, s := range spec.Servers {
			g.add(o, s)
		}
	}
	return a.gatewayGroups
}

// add adds a server of a Gateway.
func (g *gatewayGroup) add(o *kinds.Object, s *networkingv1alpha3.Server) {
	use := servers.UseOf(s)
	if use == servers.Closed {
		return
	}
	switch s.GetTls().GetMode() {
	case networkingv1alpha3.ServerTLSSettings_MUTUAL, networkingv1alpha3.ServerTLSSettings_OPTIONAL_MUTUAL,
		networkingv1alpha3.ServerTLSSettings_ISTIO_MUTUAL:
		g.identities = true
	}
	g.identities = g.identities || strings.EqualFold(s.GetPort().GetProtocol(), "HBONE")
	if use.HTTP() {
		g.http = true
	} else if g.tcp == nil {
		g.tcp = &tcpPort{s.GetPort().GetNumber(), o, use.String()}
	}
}

// gatewayCallers reports sources in AuthorizationPolicies of gateways that name identities which no server of the
// gateway can learn: those of clients' certificates where no server asks for one, and those of tokens where no server
// reads HTTP.
func (a *analysis) gatewayCallers() {
	for _, o := range a.of(kinds.AuthorizationPolicy) {
		spec := o.Spec.(*securityv1.AuthorizationPolicy)
		g := a.onlyGateways(o.Namespace, spec.GetSelector().GetMatchLabels())
		whose := "server of %s, or of other Gateways with its selector,"
		fix := "set tls.mode of a server to ISTIO_MUTUAL for callers of the mesh, or to MUTUAL; or name what clients have, such as ipBlocks"
		if targets := targetsOf(spec); len(targets) > 0 {
			g, whose = a.targetedGateways(o, targets), "listener of %s"
			fix = "set frontend validation in spec.tls of the Gateway; or name what clients have, such as ipBlocks"
		}
		if g == nil || g.identities && g.http {
			continue
		}
		effect := "nothing matches it"
		if spec.Action == securityv1.AuthorizationPolicy_DENY {
			effect += ", so it keeps no caller out"
		}
		for i, r := range spec.Rules {
			field, token := identitiesOf(r)
			if field == "" {
				continue
			}
			field = indexed("spec.rules", i) + field
			switch {
			case !token && !g.identities:
				a.report(o, diag.Warning, codeNeverMatches, field, fix,
					"no "+whose+" asks for a client's certificate: callers have no identity there, and %s", g.first, effect)
			case token && !g.http && spec.Action == securityv1.AuthorizationPolicy_ALLOW:
				a.report(o, diag.Warning, codeNeverMatches, field, "let a server of the Gateway terminate TLS and read HTTP",
					"no server of %s, or of other Gateways with its selector, reads HTTP: there are no tokens, and %s", g.first, effect)
			}
		}
	}
}

// targetedGateways returns what is true of all Gateways of the Gateway API that a policy targets. It returns nil if it
// targets something else, or if it is not known whether a listener asks for a client's certificate.
func (a *analysis) targetedGateways(o *kinds.Object, targets []*typev1beta1.PolicyTargetReference) *gatewayGroup {
	all := &gatewayGroup{http: true} // a TCP listener has no tokens, which is not looked at here
	for _, t := range targets {
		gateway := a.byKey[kinds.Key{Kind: kinds.KubeGateway, Namespace: o.Namespace, Name: t.GetName()}]
		if targetKind(t) != kinds.KubeGateway || gateway == nil {
			return nil
		}
		all.first = cmp.Or(all.first, gateway)
		spec := gateway.Spec.(*gatewayv1.Gateway).Spec
		class := spec.GatewayClassName
		if class != "istio" && class != "istiod-lite" || spec.TLS != nil && spec.TLS.Frontend != nil || spec.AllowedListeners != nil {
			return nil
		}
		for _, l := range spec.Listeners {
			if l.TLS != nil && len(l.TLS.Options) > 0 || strings.EqualFold(string(l.Protocol), hbone) {
				return nil
			}
		}
	}
	return all
}

// onlyGateways returns what is true of all Gateways of the workloads that a policy selects. It returns nil if it may
// select a workload of no Gateway.
func (a *analysis) onlyGateways(namespace string, labels map[string]string) *gatewayGroup {
	behind := a.portsBehind(namespace, labels)
	if behind.others || len(behind.gateways) == 0 {
		return nil
	}
	if slices.ContainsFunc(a.selectorsOf(kinds.Gateway)[everyNamespace].open, func(o *kinds.Object) bool {
		return namespace == a.root || kinds.GatewayReaches(o, namespace, a.options.ScopedGateways)
	}) {
		return nil // their servers are on these workloads too
	}
	all := *behind.gateways[0]
	for _, g := range behind.gateways[1:] {
		all.http, all.identities = all.http || g.http, all.identities || g.identities
	}
	return &all
}

// identitiesOf returns the first field of a rule, without the path of the rule, that demands an identity of the caller,
// or "", and whether it is one of a token.
func identitiesOf(r *securityv1beta1.Rule) (field string, token bool) {
	for j, f := range r.GetFrom() {
		s, at := f.GetSource(), indexed(".from", j)+".source."
		if identity := identityField(s, true); identity != "" {
			return at + identity, false
		}
		if len(s.GetRequestPrincipals()) > 0 {
			return at + "requestPrincipals", true
		}
	}
	for j, w := range r.GetWhen() {
		if key := w.GetKey(); len(w.GetValues()) > 0 && key != "source.ip" {
			if strings.HasPrefix(key, "source.") {
				return indexed(".when", j) + ".values", false
			} else if strings.HasPrefix(key, "request.auth.") {
				return indexed(".when", j) + ".values", true
			}
		}
	}
	return "", false
}
