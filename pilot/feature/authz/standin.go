package authz

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// NewTokens returns the feature that stands in for RequestAuthentications, which this version does not translate. It
// refuses every request to a workload that one selects: leaving it out would open what it closes.
func NewTokens() *feature.Feature {
	return &feature.Feature{
		Name:  "tokens",
		Kinds: []*kinds.Kind{kinds.RequestAuthentication},
		Half:  feature.InboundHalf,
		Select: func(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
			return feature.Policies(r, namespace, feature.Matches, kinds.RequestAuthentication)
		},
		Unsupported: func(*kinds.Object) []diag.Diagnostic {
			return []diag.Diagnostic{feature.NotImplemented("", "every request to the workloads that it selects is refused", "remove it to let requests through without it")}
		},
		Hooks: feature.Hooks{
			HTTPFilters: func(c feature.Chain) []*hcmv3.HttpFilter {
				if !applies(c) {
					return nil
				}
				return []*hcmv3.HttpFilter{envoy.HTTPFilter(httpRBAC, envoy.Any(&httprbacv3.RBAC{Rules: &rbacv3.RBAC{}}))}
			},
			NetworkFilters: func(c feature.Chain) []*listenerv3.Filter {
				if !applies(c) || c.HTTP {
					return nil
				}
				return []*listenerv3.Filter{envoy.NetworkFilter(networkRBAC, envoy.Any(&tcprbacv3.RBAC{Rules: &rbacv3.RBAC{}, StatPrefix: tcpStats}))}
			},
		},
	}
}
