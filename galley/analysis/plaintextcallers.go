package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	securityv1 "istio.io/api/security/v1"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

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
			if a.takesPlaintext(o.Namespace, labels) && !a.keepsPlaintextOut(o.Namespace, labels) {
				a.report(o, diag.Warning, codePlaintext, field, "set mode STRICT in a PeerAuthentication of these workloads",
					"the workloads take plaintext too, over which a caller has no identity: the policy does not keep it out")
			}
			continue
		}
		spaces := a.selection("", labels).namespaces
		if i := slices.IndexFunc(spaces, func(ns string) bool {
			return a.appliesToPeers(ns, labels) && a.takesPlaintext(ns, labels) && !a.keepsPlaintextOut(ns, labels)
		}); i >= 0 {
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

// identityDemands says what the AuthorizationPolicies of one namespace and selector do with callers that have no
// identity.
type identityDemands struct{ denies, allows, open bool }

// keepsPlaintextOut reports whether AuthorizationPolicies keep all callers without an identity out of the workloads of
// a namespace and selector: one denies them, or all that allow demand an identity. It reads the policies that have the
// selector, or none.
func (a *analysis) keepsPlaintextOut(namespace string, labels map[string]string) bool {
	if a.demands == nil {
		a.demands = map[selectionKey]identityDemands{}
		for _, o := range a.of(kinds.AuthorizationPolicy) {
			spec := o.Spec.(*securityv1.AuthorizationPolicy)
			if len(targetsOf(spec)) > 0 || isDryRun(o) {
				continue
			}
			key := selectionKey{o.Namespace, written(spec.GetSelector().GetMatchLabels())}
			d := a.demands[key]
			switch spec.Action {
			case securityv1.AuthorizationPolicy_DENY:
				d.denies = d.denies || slices.ContainsFunc(spec.Rules, matchesWithoutIdentity)
			case securityv1.AuthorizationPolicy_ALLOW:
				d.allows = true
				d.open = d.open || slices.ContainsFunc(spec.Rules, func(r *securityv1beta1.Rule) bool { return demandsIdentity(r) == "" })
			}
			a.demands[key] = d
		}
	}
	var all identityDemands
	for _, key := range []selectionKey{{namespace, written(labels)}, {namespace, ""}, {a.root, written(labels)}, {a.root, ""}} {
		d := a.demands[key]
		all = identityDemands{all.denies || d.denies, all.allows || d.allows, all.open || d.open}
	}
	return all.denies || all.allows && !all.open
}

// matchesWithoutIdentity reports whether a rule matches all requests of callers that have no identity.
func matchesWithoutIdentity(r *securityv1beta1.Rule) bool {
	if len(r.GetTo()) > 0 {
		return false
	}
	for _, w := range r.GetWhen() {
		if w.GetKey() != "source.principal" || len(w.GetValues()) > 0 || !slices.Equal(w.GetNotValues(), anyValue) {
			return false
		}
	}
	return len(r.GetFrom()) == 0 || slices.ContainsFunc(r.GetFrom(), func(f *securityv1beta1.Rule_From) bool {
		only := &securityv1beta1.Source{NotPrincipals: anyValue}
		return proto.Equal(f.GetSource(), only)
	})
}

// anyValue is the list of values that matches every value, but no missing one.
var anyValue = []string{"*"}

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
