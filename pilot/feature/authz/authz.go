package authz

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// noPrincipal returns rules that allow nobody, so that nothing passes.
func noPrincipal() *rbacv3.RBAC { return &rbacv3.RBAC{} }

// DenyAllHTTP returns a filter that answers every request with 403.
func DenyAllHTTP() *hcmv3.HttpFilter {
	return envoy.HTTPFilter("envoy.filters.http.rbac", envoy.Any(&httprbacv3.RBAC{Rules: noPrincipal()}))
}

// DenyAllTCP returns a filter that closes every connection.
func DenyAllTCP() *listenerv3.Filter {
	return envoy.NetworkFilter("envoy.filters.network.rbac", envoy.Any(&tcprbacv3.RBAC{Rules: noPrincipal(), StatPrefix: "tcp."}))
}
