package analysis

import (
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/protocols"
)

// tokens reports issuers that a RequestAuthentication has twice, required tokens that exclude each other, and ports of
// the selected workloads that are not HTTP, on which proxies read no tokens.
func (a *analysis) tokens() {
	type portOf struct {
		service *kinds.Object
		port    int
	}
	reported, looked := map[portOf]bool{}, map[selectionKey]bool{}
	for _, o := range a.of(kinds.RequestAuthentication) {
		spec := o.Spec.(*securityv1.RequestAuthentication)
		issuers := map[string]int{}
		for i, r := range spec.JwtRules {
			if first, known := issuers[r.Issuer]; known {
				a.report(o, diag.Warning, codeIssuer, indexed("spec.jwtRules", i)+".issuer", "merge the two",
					"%s has the issuer %q too: a token that either of the two accepts, where it looks for tokens, comes in",
					indexed("spec.jwtRules", first), r.Issuer)
			} else {
				issuers[r.Issuer] = i
			}
		}
		a.requiredTokens(o, spec.JwtRules)
		if len(spec.JwtRules) == 0 {
			continue
		}
		labels := spec.GetSelector().GetMatchLabels()
		own := selectionKey{o.Namespace, written(labels)}
		if looked[own] {
			continue
		}
		looked[own] = true
		for s := range a.servicesUnder(o.Namespace, labels) {
			service := &s.Spec.(*corev1.Service).Spec
			for i := range service.Ports {
				p, key := &service.Ports[i], portOf{s, i}
				protocol := protocols.OfPort(p)
				if !protocol.IsTCP() || reported[key] || a.leadsToGateway(s) {
					continue
				}
				reported[key] = true
				a.report(s, diag.Info, codeTokenPort, indexed("spec.ports", i)+".name", "name it for HTTP, such as http-"+p.Name,
					"%s applies to these workloads, and port %d is %s: tokens are not read there", o, p.Port, protocol)
			}
		}
	}
}

// requiredTokens reports rules of a RequestAuthentication that look for the tokens of two issuers in one place, if one
// of the rules requires its token. Each refuses the other's token, so that no request with a token in that place
// passes.
func (a *analysis) requiredTokens(o *kinds.Object, rules []*securityv1.JWTRule) {
	required := func(r *securityv1.JWTRule) bool { return r.Presence == securityv1.JWTRule_REQUIRED }
	if !slices.ContainsFunc(rules, required) {
		return
	}
	first := map[string]int{} // index of the first rule that looks in a place
	for i, r := range rules {
		for _, at := range places(r) {
			other, taken := first[at]
			if !taken {
				first[at] = i
				continue
			}
			one := rules[other]
			if one.Issuer == r.Issuer || !required(one) && !required(r) {
				continue
			}
			a.report(o, diag.Warning, codeTokenPlace, indexed("spec.jwtRules", i), "name another place in fromHeaders of one of them",
				"%s looks for tokens of another issuer in the same place (%s), and one of the two is required: a token there is never valid for both",
				indexed("spec.jwtRules", other), at)
			break
		}
	}
}

// places returns where a rule looks for tokens, in words.
func places(r *securityv1.JWTRule) (list []string) {
	for _, h := range r.FromHeaders {
		list = append(list, strings.TrimSuffix("header "+strings.ToLower(h.Name)+" "+h.Prefix, " "))
	}
	for _, name := range r.FromParams {
		list = append(list, "parameter "+name)
	}
	for _, name := range r.FromCookies {
		list = append(list, "cookie "+name)
	}
	if list == nil {
		return []string{"header authorization Bearer", "parameter access_token"}
	}
	return list
}

// leadsToGateway reports whether a Service selects the proxies of a Gateway. The servers of the Gateway say what is
// read at a port, and not the Service.
func (a *analysis) leadsToGateway(service *kinds.Object) bool {
	in := a.selectorsOf(kinds.Gateway)[everyNamespace]
	labels := service.Spec.(*corev1.Service).Spec.Selector
	for key, value := range labels {
		if in != nil && slices.ContainsFunc(in.first[key][value], func(o *kinds.Object) bool {
			return kinds.GatewayReaches(o, service.Namespace, a.options.ScopedGateways) &&
				kinds.Selects(o.Spec.(*networkingv1.Gateway).Selector, labels)
		}) {
			return true
		}
	}
	return false
}

// servicesUnder returns the Services with a selector that a policy of a namespace affects: all of them if the policy
// has no labels, else the Services that share a workload with it.
func (a *analysis) servicesUnder(namespace string, labels map[string]string) iter.Seq[*kinds.Object] {
	return func(yield func(*kinds.Object) bool) {
		if len(labels) == 0 {
			services := a.services
			if namespace != a.root {
				services = a.servicesIn(namespace)
			}
			for _, o := range services {
				if spec := &o.Spec.(*corev1.Service).Spec; len(spec.Selector) > 0 && spec.Type != corev1.ServiceTypeExternalName && !yield(o) {
					return
				}
			}
			return
		}
		spaces := []string{namespace}
		if namespace == a.root {
			spaces = a.selection("", labels).namespaces
		}
		groups, seen := a.servicesOf(), map[*serviceGroup]bool{}
		for _, ns := range spaces {
			for w := range a.selected(ns, labels) {
				for _, g := range groups[w] {
					if seen[g] {
						continue
					}
					seen[g] = true
					for _, o := range g.services {
						if !yield(o) {
							return
						}
					}
				}
			}
		}
	}
}
