package authz

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// NewCustom returns the feature of policies by which proxies ask an authorizer: those of action CUSTOM. Their filters
// come before tokens are validated.
func NewCustom() *feature.Feature {
	return &feature.Feature{
		Name:   "authz-custom",
		Kinds:  []*kinds.Kind{kinds.AuthorizationPolicy},
		Half:   feature.InboundHalf,
		Select: selectCustom,
		Hooks:  feature.Hooks{HTTPFilters: customHTTP, NetworkFilters: customNetwork},
	}
}

// selectCustom selects the policies and the providers that they name.
func selectCustom(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
	policies := feature.Policies(r, namespace, func(o *kinds.Object, w feature.Workload) bool {
		return action(o) == securityv1.AuthorizationPolicy_CUSTOM && feature.Matches(o, w)
	}, kinds.AuthorizationPolicy)
	return func(w feature.Workload) feature.Selection {
		s := policies(w)
		var list []feature.Provider
		for o := range s.Objects.All {
			p := feature.Provider{Name: spec(o).GetProvider().GetName()}
			if p.Config, p.Service = r.ExtensionProvider(p.Name, namespace); !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
		s.Providers = frozen.ListOf(list...)
		return s
	}
}

// What the filters of a custom action call each other. The filter of the policies never refuses: it says, as if in a
// dry run, which rule a request matches. The filter that asks the authorizer is enabled where there is such a rule.
const (
	customPrefix = "istio-ext-authz"
	customStats  = "istio_ext_authz_"
	customResult = customStats + "shadow_effective_policy_id"
)

// refuseAll is the rule that stands for policies whose authorizer cannot be asked.
const refuseAll = "default-deny-all-due-to-bad-CUSTOM-action"

// denyAll returns rules that refuse everything.
func denyAll() *rbacv3.RBAC {
	return &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{refuseAll: {
		Permissions: []*rbacv3.Permission{permissions().any()}, Principals: []*rbacv3.Principal{principals().any()},
	}}}
}

// customRules returns the rules of the policies that are selected, and the authorizer to ask. It is nil where there is
// none, or where policies name several: then every request is refused.
func customRules(c feature.Chain) (*rbacv3.RBAC, *feature.Provider) {
	providers := slices.Collect(c.Selection.Providers.All)
	if len(providers) != 1 || !usable(providers[0], c.HTTP) {
		return denyAll(), nil
	}
	out := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}
	for o := range c.Selection.Objects.All {
		translate(out, o, c, customPrefix+"-"+providers[0].Name+"-")
	}
	return out, &providers[0]
}

// customHTTP returns the filters of policies of action CUSTOM.
func customHTTP(c feature.Chain) []*hcmv3.HttpFilter {
	if !applies(c) {
		return nil
	}
	r, p := customRules(c)
	if p == nil {
		return []*hcmv3.HttpFilter{envoy.HTTPFilter(httpRBAC, envoy.Any(&httprbacv3.RBAC{Rules: r}))}
	}
	return []*hcmv3.HttpFilter{
		envoy.HTTPFilter(httpRBAC, envoy.Any(&httprbacv3.RBAC{ShadowRules: r, ShadowRulesStatPrefix: customStats})),
		envoy.HTTPFilter("envoy.filters.http.ext_authz", envoy.Any(askHTTP(p))),
	}
}

// customNetwork returns the filters of policies of action CUSTOM for connections.
func customNetwork(c feature.Chain) []*listenerv3.Filter {
	if !applies(c) || c.HTTP {
		return nil
	}
	r, p := customRules(c)
	if p == nil {
		return []*listenerv3.Filter{envoy.NetworkFilter(networkRBAC, envoy.Any(&tcprbacv3.RBAC{Rules: r, StatPrefix: tcpStats}))}
	}
	return []*listenerv3.Filter{
		envoy.NetworkFilter(networkRBAC, envoy.Any(&tcprbacv3.RBAC{ShadowRules: r, ShadowRulesStatPrefix: customStats, StatPrefix: tcpStats})),
		envoy.NetworkFilter("envoy.filters.network.ext_authz", envoy.Any(askTCP(p))),
	}
}
