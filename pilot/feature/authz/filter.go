package authz

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// Names of filters.
const (
	httpRBAC    = "envoy.filters.http.rbac"
	networkRBAC = "envoy.filters.network.rbac"
)

// tcpStats is the prefix of the names of metrics of network filters.
const tcpStats = "tcp."

// Prefixes of the metadata keys under which the results of dry runs are stored. Traces have tags with them (package
// telemetry).
const (
	dryRunAllow = "istio_dry_run_allow_"
	dryRunDeny  = "istio_dry_run_deny_"
)

// applies reports whether a chain takes connections for the workload, to which its policies apply.
func applies(c feature.Chain) bool {
	return !c.Selection.Empty() && c.Direction != feature.Outbound && !c.Refused
}

// filtersReadOf returns a chain with the fields that filters depend on: the policies, and whether they are for requests
// or connections.
func filtersReadOf(c feature.Chain) feature.Chain {
	if !applies(c) {
		return feature.Chain{}
	}
	return feature.Chain{Proxy: feature.Proxy{Mesh: c.Mesh}, Direction: feature.Inbound, HTTP: c.HTTP, Selection: c.Selection}
}

// httpFilters returns a filter for the policies of each action.
func httpFilters(c feature.Chain) []*hcmv3.HttpFilter {
	if !applies(c) {
		return nil
	}
	var list []*hcmv3.HttpFilter
	for _, r := range byAction(c) {
		list = append(list, envoy.HTTPFilter(httpRBAC,
			envoy.Any(&httprbacv3.RBAC{Rules: r.enforced, ShadowRules: r.dry, ShadowRulesStatPrefix: r.prefix})))
	}
	return list
}

// networkFilters returns a filter for the policies of each action.
func networkFilters(c feature.Chain) []*listenerv3.Filter {
	if !applies(c) || c.HTTP {
		return nil
	}
	var list []*listenerv3.Filter
	for _, r := range byAction(c) {
		list = append(list, envoy.NetworkFilter(networkRBAC, envoy.Any(&tcprbacv3.RBAC{
			Rules: r.enforced, ShadowRules: r.dry, ShadowRulesStatPrefix: r.prefix, StatPrefix: tcpStats,
		})))
	}
	return list
}

// rules are the rules of the policies of one action. They are nil if there is no such policy.
type rules struct {
	enforced, dry *rbacv3.RBAC
	prefix        string // metadata prefix of the results of dry runs
}

// byAction returns the rules of the selected policies by action, in the order of filters.
func byAction(c feature.Chain) []rules {
	var list []rules
	for _, a := range []struct {
		action securityv1.AuthorizationPolicy_Action
		rbac   rbacv3.RBAC_Action
		dry    string // metadata prefix of the results of dry runs
	}{
		{securityv1.AuthorizationPolicy_AUDIT, rbacv3.RBAC_LOG, ""},
		{securityv1.AuthorizationPolicy_DENY, rbacv3.RBAC_DENY, dryRunDeny},
		{securityv1.AuthorizationPolicy_ALLOW, rbacv3.RBAC_ALLOW, dryRunAllow},
	} {
		r := rules{prefix: dryRunAllow}
		for o := range c.Selection.Objects.All {
			if action(o) != a.action {
				continue
			}
			into := &r.enforced
			if dryRun(o) {
				into, r.prefix = &r.dry, a.dry
			}
			if *into == nil {
				*into = &rbacv3.RBAC{Action: a.rbac, Policies: map[string]*rbacv3.Policy{}}
			}
			translate(*into, o, c, "", "")
		}
		if r.enforced != nil || r.dry != nil {
			list = append(list, r)
		}
	}
	return list
}
