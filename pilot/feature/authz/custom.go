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
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// NewCustom returns the feature of policies of action CUSTOM, by which proxies ask an external authorizer. Their
// filters come before tokens are validated.
func NewCustom() *feature.Feature {
	return &feature.Feature{
		Name:   "authz-custom",
		Kinds:  []*kinds.Kind{kinds.AuthorizationPolicy},
		Part:   feature.InboundPart,
		Select: selectCustom, UnsupportedMesh: unsupportedMesh,
		Hooks: feature.Hooks{FiltersReadOf: customReadsOf, HTTPFilters: customHTTP, NetworkFilters: customNetwork},
	}
}

// selectCustom selects the policies and the providers that they name.
func selectCustom(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
	policies := feature.Policies(r, namespace, func(o *kinds.Object, w feature.Workload) bool {
		return action(o) == securityv1.AuthorizationPolicy_CUSTOM && !dryRun(o) && feature.Matches(o, w)
	}, kinds.AuthorizationPolicy)
	return func(w feature.Workload) feature.Selection {
		s := policies(w)
		var list []feature.ExtensionProvider
		for o := range s.Objects.All {
			p := feature.ExtensionProvider{Name: spec(o).GetProvider().GetName()}
			if p.Config, p.Service = r.ExtensionProvider(p.Name, namespace); !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
		s.Providers = frozen.ListOf(list...)
		return s
	}
}

// Names shared by the filters of action CUSTOM. The filter of the policies never denies a request: like a dry run, it
// records which rule a request matches. The filter that asks the authorizer is enabled if there is such a rule.
const (
	customPrefix = "istio-ext-authz"
	customStats  = "istio_ext_authz_"
	customResult = customStats + "shadow_effective_policy_id"
)

// refused is the suffix of the names of rules that deny all matching requests because the authorizer cannot be asked.
const refused = "-deny-due-to-bad-CUSTOM-action"

// customRules are the rules of the policies that name one provider. If provider is nil, there is no authorizer to ask,
// and matching requests are denied.
type customRules struct {
	*rbacv3.RBAC
	provider *feature.ExtensionProvider
}

// byProvider returns the rules of the selected policies by provider. A workload has one authorizer: if its policies
// name several, none is asked.
func byProvider(c feature.Chain) []customRules {
	var list []customRules
	providers := slices.Collect(c.Selection.Providers.All)
	for i := range providers {
		p, end := &providers[i], ""
		r := customRules{&rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{}}, p}
		if len(providers) > 1 || !p.Authorizes(c.HTTP) {
			r.provider, end = nil, refused
		}
		for o := range c.Selection.Objects.All {
			if spec(o).GetProvider().GetName() == p.Name {
				translate(r.RBAC, o, c, customPrefix+"-"+p.Name+"-", end)
			}
		}
		list = append(list, r)
	}
	return list
}

// customReadsOf is filtersReadOf, with the fields that the headers of a provider depend on.
func customReadsOf(c feature.Chain) feature.Chain {
	read := filtersReadOf(c)
	if applies(c) {
		read.Capabilities = c.Capabilities & node.RecentCommands
	}
	return read
}

// customHTTP returns the filters of policies of action CUSTOM.
func customHTTP(c feature.Chain) []*hcmv3.HttpFilter {
	if !applies(c) {
		return nil
	}
	var list []*hcmv3.HttpFilter
	for _, r := range byProvider(c) {
		if r.provider == nil {
			list = append(list, envoy.HTTPFilter(httpRBAC, envoy.Any(&httprbacv3.RBAC{Rules: r.RBAC})))
			continue
		}
		list = append(list,
			envoy.HTTPFilter(httpRBAC, envoy.Any(&httprbacv3.RBAC{ShadowRules: r.RBAC, ShadowRulesStatPrefix: customStats})),
			envoy.HTTPFilter("envoy.filters.http.ext_authz", envoy.Any(askHTTP(r.provider, c.Capabilities))),
		)
	}
	return list
}

// customNetwork returns the filters of policies of action CUSTOM for connections.
func customNetwork(c feature.Chain) []*listenerv3.Filter {
	if !applies(c) || c.HTTP {
		return nil
	}
	var list []*listenerv3.Filter
	for _, r := range byProvider(c) {
		if r.provider == nil {
			list = append(list, envoy.NetworkFilter(networkRBAC, envoy.Any(&tcprbacv3.RBAC{Rules: r.RBAC, StatPrefix: tcpStats})))
			continue
		}
		list = append(list,
			envoy.NetworkFilter(networkRBAC, envoy.Any(&tcprbacv3.RBAC{ShadowRules: r.RBAC, ShadowRulesStatPrefix: customStats,
				StatPrefix: tcpStats})),
			envoy.NetworkFilter("envoy.filters.network.ext_authz", envoy.Any(askTCP(r.provider))),
		)
	}
	return list
}
