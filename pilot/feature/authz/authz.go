package authz

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Rules that allow, and name nobody: nothing passes.
func nobody() *rbacv3.RBAC { return &rbacv3.RBAC{} }

// RefuseHTTP answers every request with 403.
func RefuseHTTP() *hcmv3.HttpFilter {
	return envoy.HTTPFilter("envoy.filters.http.rbac", envoy.Any(&httprbacv3.RBAC{Rules: nobody()}))
}

// RefuseTCP closes every connection.
func RefuseTCP() *listenerv3.Filter {
	return envoy.NetworkFilter("envoy.filters.network.rbac", envoy.Any(&tcprbacv3.RBAC{Rules: nobody(), StatPrefix: "tcp."}))
}
