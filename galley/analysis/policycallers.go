package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// splitRules reports policies of action ALLOW with two rules, one with callers alone and one with operations alone.
// Each rule allows by itself, and the author of such a policy often means both together.
func (a *analysis) splitRules() {
	for _, o := range a.of(kinds.AuthorizationPolicy) {
		spec := o.Spec.(*securityv1.AuthorizationPolicy)
		if spec.Action != securityv1.AuthorizationPolicy_ALLOW || len(spec.Rules) != 2 {
			continue
		}
		first, second := spec.Rules[0], spec.Rules[1]
		if len(first.To)+len(first.When)+len(second.From)+len(second.When) == 0 && len(first.From) > 0 && len(second.To) > 0 {
			a.report(o, diag.Info, codeSplitRule, "spec.rules[1]", "if both are meant together, write from and to into one rule, with one dash",
				"spec.rules[0] allows its callers everything, and this rule allows every caller its operations: either is enough")
		}
	}
}

// tokenIdentities reports policies that read tokens where no RequestAuthentication accepts a token, or none of the
// issuer. Without one a request has no claims.
func (a *analysis) tokenIdentities() {
	for _, o := range a.of(kinds.AuthorizationPolicy) {
		spec := o.Spec.(*securityv1.AuthorizationPolicy)
		field, issuers := tokenFields(spec)
		if field == "" || a.validatesTokensItself(o.Namespace) {
			continue
		}
		accepted := a.acceptedIssuers(o, spec)
		if len(accepted) == 0 {
			a.report(o, diag.Warning, codeTokenPolicy, field, "add a RequestAuthentication for the same workloads",
				"no RequestAuthentication applies to the workloads of this policy: their requests have no token that was validated, and no claims")
			continue
		}
		for _, i := range issuers {
			if accepted[""] || accepted[i.name] {
				continue
			}
			list := slices.Sorted(maps.Keys(accepted))
			fix := "add the issuer to a RequestAuthentication; the policies there have " + listed(list)
			if near := a.nearest(i.name, list); near != "" {
				fix = diag.DidYouMean(near)
			}
			a.report(o, diag.Warning, codeTokenPolicy, i.field, fix,
				"no RequestAuthentication that applies has the issuer %q: no token of this issuer is accepted", i.name)
		}
	}
}

// acceptedIssuers returns the issuers of the RequestAuthentications that may apply to workloads of an
// AuthorizationPolicy. A rule without an issuer accepts all, and adds "". It does not compare targets.
func (a *analysis) acceptedIssuers(o *kinds.Object, spec *securityv1.AuthorizationPolicy) map[string]bool {
	labels := spec.GetSelector().GetMatchLabels()
	if len(targetsOf(spec)) > 0 {
		labels = nil // compatible with all
	}
	key := selectionKey{o.Namespace, written(labels)}
	accepted := a.accepted[key]
	if accepted == nil {
		accepted = map[string]bool{}
		lists.Put(&a.accepted, key, accepted)
		spaces := []string{o.Namespace, a.root}
		if o.Namespace == a.root {
			spaces = []string{everyNamespace}
		}
		for _, ns := range spaces {
			for r := range a.sharing(kinds.RequestAuthentication, ns, labels) {
				for _, rule := range r.Spec.(*securityv1.RequestAuthentication).JwtRules {
					accepted[rule.Issuer] = true
				}
			}
		}
	}
	return accepted
}

// issuerAt is an issuer, and the field that names it.
type issuerAt struct{ name, field string }

// tokenFields returns the first field of a policy that reads tokens, or "", and the issuers that its values name.
func tokenFields(spec *securityv1.AuthorizationPolicy) (first string, issuers []issuerAt) {
	add := func(field string, values []string, principals bool) {
		for i, v := range values {
			at := indexed(field, i)
			if first == "" {
				first = at
			}
			if slash := strings.LastIndexByte(v, '/'); principals && slash > 0 && !strings.HasPrefix(v, "*") && v[slash+1:] != "" {
				issuers = append(issuers, issuerAt{v[:slash], at})
			}
		}
	}
	for i, r := range spec.Rules {
		rule := indexed("spec.rules", i)
		for j, f := range r.GetFrom() {
			source := indexed(rule+".from", j) + ".source"
			add(source+".requestPrincipals", f.GetSource().GetRequestPrincipals(), true)
			add(source+".notRequestPrincipals", f.GetSource().GetNotRequestPrincipals(), true)
		}
		for j, w := range r.GetWhen() {
			if strings.HasPrefix(w.GetKey(), "request.auth.") {
				principals := w.GetKey() == "request.auth.principal"
				add(indexed(rule+".when", j)+".values", w.GetValues(), principals)
				add(indexed(rule+".when", j)+".notValues", w.GetNotValues(), principals)
			}
		}
	}
	return first, issuers
}

// validatesTokensItself reports whether an EnvoyFilter that may apply in a namespace mentions the filter of tokens.
func (a *analysis) validatesTokensItself(namespace string) bool {
	if a.ownTokens == nil {
		a.ownTokens = map[string]bool{}
		for _, o := range a.of(kinds.EnvoyFilter) {
			if strings.Contains(o.Spec.(*networkingv1alpha3.EnvoyFilter).String(), "jwt_authn") {
				a.ownTokens[o.Namespace] = true
			}
		}
	}
	return a.ownTokens[namespace] || a.ownTokens[a.root] || namespace == a.root && len(a.ownTokens) > 0
}

// plaintextCallers reports policies that keep out callers by their identity where callers may come without one: over
// plaintext they have no identity, and the policy does not match them.
func (a *analysis) plaintextCallers() {
	for _, o := range a.of(kinds.AuthorizationPolicy) {
		spec := o.Spec.(*securityv1.AuthorizationPolicy)
		field := keptOut(spec)
		labels := spec.GetSelector().GetMatchLabels()
		if len(targetsOf(spec)) > 0 || a.onlyGateways(o.Namespace, labels) != nil {
			continue
		}
		a.unknownCallers(o, spec)
		if field == "" {
			continue
		}
		if o.Namespace != a.root {
			if a.takesPlaintext(o.Namespace, labels) {
				a.report(o, diag.Warning, codePlaintext, field, "set mode STRICT in a PeerAuthentication of these workloads",
					"the workloads take plaintext too, over which a caller has no identity: the policy does not keep it out")
			}
			continue
		}
		spaces := a.selection("", labels).namespaces
		if i := slices.IndexFunc(spaces, func(ns string) bool { return a.appliesToPeers(ns, labels) && a.takesPlaintext(ns, labels) }); i >= 0 {
			a.report(o, diag.Warning, codePlaintext, field, "set mode STRICT in a PeerAuthentication of these workloads",
				"workloads of namespace %s take plaintext too, over which a caller has no identity: the policy does not keep it out", spaces[i])
		}
	}
}

// unknownCallers reports rules that demand an identity at ports where a PeerAuthentication turns mutual TLS off for the
// workloads of the policy.
func (a *analysis) unknownCallers(o *kinds.Object, spec *securityv1.AuthorizationPolicy) {
	if o.Namespace == a.root {
		return
	}
	effect := "the rule matches no caller there"
	if spec.Action == securityv1.AuthorizationPolicy_DENY {
		effect += ", and keeps none out"
	}
	for i, r := range spec.Rules {
		field, ports := demandsIdentity(r), portsOfRule(r)
		if field == "" {
			continue
		}
		if len(ports) == 0 {
			ports = []uint32{0}
		}
		for _, port := range ports {
			by := a.turnedOffBy(o.Namespace, spec.GetSelector().GetMatchLabels(), port)
			if by == nil {
				continue
			}
			where := "the workloads"
			if port != 0 {
				where = fmt.Sprintf("port %d of the workloads", port)
			}
			a.report(o, diag.Warning, codeNeverMatches, indexed("spec.rules", i)+field, "turn mutual TLS on there, or name callers by ipBlocks",
				"%s turns mutual TLS off at %s, so callers have no identity: %s", by, where, effect)
			break
		}
	}
}

// demandsIdentity returns a field of a rule, without the path of the rule, because of which every caller needs an
// identity of a certificate, or "".
func demandsIdentity(r *securityv1beta1.Rule) string {
	for j, w := range r.GetWhen() {
		if strings.HasPrefix(w.GetKey(), "source.") && w.GetKey() != "source.ip" && len(w.GetValues()) > 0 {
			return indexed(".when", j) + ".values"
		}
	}
	first := ""
	for j, f := range r.GetFrom() {
		identity := identityField(f.GetSource(), true)
		if identity == "" {
			return ""
		}
		first = cmp.Or(first, indexed(".from", j)+".source."+identity)
	}
	return first
}

// portsOfRule returns the ports that a rule is for, or nil if it is for all ports.
func portsOfRule(r *securityv1beta1.Rule) (ports []uint32) {
	for _, to := range r.GetTo() {
		if len(to.GetOperation().GetPorts()) == 0 {
			return nil
		}
		for _, text := range to.GetOperation().GetPorts() {
			if n, err := strconv.ParseUint(text, 10, 16); err == nil {
				ports = append(ports, uint32(n))
			}
		}
	}
	return ports
}

// turnedOffBy returns the PeerAuthentication that turns mutual TLS off at a port of all workloads of a namespace and
// selector, or nil. The port 0 stands for all ports.
func (a *analysis) turnedOffBy(namespace string, labels map[string]string, port uint32) *kinds.Object {
	var own *kinds.Object
	for o := range a.sharing(kinds.PeerAuthentication, namespace, labels) {
		if selector := o.Spec.(*securityv1.PeerAuthentication).GetSelector().GetMatchLabels(); len(selector) == 0 {
			continue
		} else if own != nil || !kinds.Selects(selector, labels) {
			return nil // workloads may differ
		}
		own = o
	}
	mode, by := a.peerMode(namespace)
	if own != nil {
		spec := own.Spec.(*securityv1.PeerAuthentication)
		if m := spec.GetMtls().GetMode(); m != securityv1.PeerAuthentication_MutualTLS_UNSET {
			mode, by = m, own
		}
		for n, at := range spec.PortLevelMtls {
			switch m := at.GetMode(); {
			case m == securityv1.PeerAuthentication_MutualTLS_UNSET:
			case port == 0 && m != securityv1.PeerAuthentication_MutualTLS_DISABLE:
				return nil
			case n == port:
				mode, by = m, own
			}
		}
	}
	if mode != securityv1.PeerAuthentication_MutualTLS_DISABLE {
		return nil
	}
	return by
}

// takesPlaintext reports whether workloads of a namespace and selector certainly take connections without mutual TLS.
func (a *analysis) takesPlaintext(namespace string, labels map[string]string) bool {
	mode, _ := a.peerMode(namespace)
	return mode != securityv1.PeerAuthentication_MutualTLS_STRICT && !a.hasOwnPeerMode(namespace, labels)
}

// appliesToPeers reports whether a selector matches a workload of a namespace with a proxy that is of no Gateway.
func (a *analysis) appliesToPeers(namespace string, labels map[string]string) bool {
	key := selectionKey{namespace, written(labels)}
	applies, known := a.peers[key]
	if !known {
		for w := range a.selected(namespace, labels) {
			applies = applies || a.hasProxy(w) && len(a.groupsOfGateways()[w]) == 0
		}
		lists.Put(&a.peers, key, applies)
	}
	return applies
}

// keptOut returns the first field of a policy that keeps out callers by their identity, or "".
func keptOut(spec *securityv1.AuthorizationPolicy) string {
	denies := spec.Action == securityv1.AuthorizationPolicy_DENY
	if !denies && spec.Action != securityv1.AuthorizationPolicy_ALLOW {
		return ""
	}
	for i, r := range spec.Rules {
		rule := indexed("spec.rules", i)
		for j, f := range r.GetFrom() {
			if field := identityField(f.GetSource(), denies); field != "" {
				return indexed(rule+".from", j) + ".source." + field
			}
		}
		for j, w := range r.GetWhen() {
			if !strings.HasPrefix(w.GetKey(), "source.") || w.GetKey() == "source.ip" {
				continue
			}
			if denies && len(w.GetValues()) > 0 {
				return indexed(rule+".when", j) + ".values"
			}
			if !denies && len(w.GetValues()) == 0 && len(r.GetFrom()) == 0 {
				return indexed(rule+".when", j) + ".notValues"
			}
		}
	}
	return ""
}

// identityField returns the first list of a source with identities that a policy keeps out, or "". A policy that denies
// keeps out the identities that a source names. Another keeps out the identities that a source excludes, if the source
// names none.
func identityField(s *securityv1beta1.Source, denies bool) string {
	excluded := ""
	for _, n := range []struct {
		field, notField string
		values, others  []string
	}{
		{"principals", "notPrincipals", s.GetPrincipals(), s.GetNotPrincipals()},
		{"namespaces", "notNamespaces", s.GetNamespaces(), s.GetNotNamespaces()},
		{"serviceAccounts", "notServiceAccounts", s.GetServiceAccounts(), s.GetNotServiceAccounts()},
		{"trustDomains", "notTrustDomains", s.GetTrustDomains(), s.GetNotTrustDomains()},
	} {
		switch {
		case len(n.values) > 0 && denies:
			return n.field
		case len(n.values) > 0:
			return ""
		case len(n.others) > 0 && !denies:
			excluded = cmp.Or(excluded, n.notField)
		}
	}
	if len(s.GetRequestPrincipals()) > 0 {
		return ""
	}
	return excluded
}

// ofRequests reports whether a key of a condition is an attribute that only HTTP requests have.
func ofRequests(key string) bool {
	return strings.HasPrefix(key, "request.") || strings.HasPrefix(key, "experimental.envoy.filters.")
}
