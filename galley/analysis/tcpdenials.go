package analysis

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	securityv1 "istio.io/api/security/v1"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// tcpDenials reports rules that deny or allow requests where a port of the workload is not HTTP. There proxies leave
// out the conditions of rules that deny and that they cannot evaluate, and such a rule denies every connection. They
// leave out whole rules that allow.
func (a *analysis) tcpDenials() {
	for _, o := range a.of(kinds.AuthorizationPolicy) {
		spec := o.Spec.(*securityv1.AuthorizationPolicy)
		if spec.Action == securityv1.AuthorizationPolicy_ALLOW && len(targetsOf(spec)) == 0 {
			a.allowsNoTCP(o, spec)
		}
		if spec.Action != securityv1.AuthorizationPolicy_DENY || len(targetsOf(spec)) > 0 || isDryRun(o) {
			continue
		}
		for i, r := range spec.Rules {
			left, others := leftOutOnTCP(r)
			if left == "" {
				continue
			}
			tcp := a.portsBehind(o.Namespace, spec.GetSelector().GetMatchLabels()).tcp
			if tcp == nil {
				break
			}
			const fix = "name the HTTP ports in to.operation.ports"
			if others {
				a.report(o, diag.Warning, codeSchemaWarning, indexed("spec.rules", i), fix,
					"the rule names no ports, and %s is what only HTTP requests have: at port %d of %s, which is %s, that condition is left out, "+
						"and the rule denies every connection that matches the others", left, tcp.number, tcp.of, tcp.protocol)
				continue
			}
			a.report(o, diag.Warning, codeSchemaWarning, indexed("spec.rules", i), fix,
				"the rule reads what only HTTP requests have, and names no ports: it denies every connection to port %d of %s, which is %s",
				tcp.number, tcp.of, tcp.protocol)
			break // other rules deny no more connections
		}
	}
}

// allowsNoTCP reports rules that allow requests at a port that is TCP. There proxies leave the rules out.
func (a *analysis) allowsNoTCP(o *kinds.Object, spec *securityv1.AuthorizationPolicy) {
	for i, r := range spec.Rules {
		ports := portsOfRule(r)
		if len(ports) == 0 || !readsRequests(r) {
			continue
		}
		behind := a.portsBehind(o.Namespace, spec.GetSelector().GetMatchLabels())
		for _, n := range ports {
			if tcp := behind.tcpOnly[n]; tcp != nil && len(behind.gateways) == 0 {
				a.report(o, diag.Warning, codeSchemaWarning, indexed("spec.rules", i),
					"remove what only HTTP requests have, or give the port of the Service the protocol of the workload",
					"the rule reads what only HTTP requests have, and port %d of the workloads of %s is %s: the rule allows nothing there",
					n, tcp.of, tcp.protocol)
				break
			}
		}
	}
}

// readsRequests reports whether only requests match a rule.
func readsRequests(r *securityv1beta1.Rule) bool {
	if slices.ContainsFunc(r.GetWhen(), func(w *securityv1beta1.Condition) bool { return ofRequests(w.GetKey()) }) {
		return true
	}
	connections := func(t *securityv1beta1.Rule_To) bool {
		o := t.GetOperation()
		return len(o.GetHosts())+len(o.GetNotHosts())+len(o.GetMethods())+len(o.GetNotMethods())+len(o.GetPaths())+len(o.GetNotPaths()) == 0
	}
	return len(r.GetTo()) > 0 && !slices.ContainsFunc(r.GetTo(), connections)
}

// isDryRun reports whether a policy only logs what it would deny.
func isDryRun(o *kinds.Object) bool {
	dry, err := strconv.ParseBool(o.Annotations[kinds.AnnotationDryRun])
	return err == nil && dry
}

// leftOutOnTCP returns a condition that only HTTP requests meet, or "". Without it, the rule denies TCP connections.
// others reports whether the rule has other conditions.
func leftOutOnTCP(r *securityv1beta1.Rule) (left string, others bool) {
	for _, w := range r.GetWhen() {
		switch {
		case w.GetKey() == "destination.port":
			return "", false
		case ofRequests(w.GetKey()):
			left = cmp.Or(left, w.GetKey())
		default:
			others = true
		}
	}
	open := len(r.GetTo()) == 0 // the rule has an operation of every port
	for _, t := range r.GetTo() {
		if o := t.GetOperation(); len(o.GetPorts())+len(o.GetNotPorts()) == 0 {
			open = true
			left = cmp.Or(left, "an operation of hosts, methods or paths")
		}
	}
	every := len(r.GetFrom()) == 0 // the rule has a source without other conditions
	for _, f := range r.GetFrom() {
		s := f.GetSource()
		if len(s.GetRequestPrincipals())+len(s.GetNotRequestPrincipals()) > 0 {
			left = cmp.Or(left, "requestPrincipals")
		}
		every = every || len(s.GetPrincipals())+len(s.GetNotPrincipals())+len(s.GetNamespaces())+len(s.GetNotNamespaces())+
			len(s.GetServiceAccounts())+len(s.GetNotServiceAccounts())+len(s.GetTrustDomains())+len(s.GetNotTrustDomains())+
			len(s.GetIpBlocks())+len(s.GetNotIpBlocks())+len(s.GetRemoteIpBlocks())+len(s.GetNotRemoteIpBlocks()) == 0
	}
	if !open {
		return "", false
	}
	return left, others || !every
}

// ofRequests reports whether a key of a condition is an attribute that only HTTP requests have.
func ofRequests(key string) bool {
	return strings.HasPrefix(key, "request.") || strings.HasPrefix(key, "experimental.envoy.filters.")
}
