package grpc

import (
	"strconv"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// policies returns the filters of an Envoy that are authorization policies, as gRPC knows them: each with a name of its
// own, without dry runs. What gRPC cannot evaluate never opens anything. A rule that allows is left out, one that
// denies denies everything. gRPC asks no authorizer: what one would be asked about is denied.
func policies(filters []*hcmv3.HttpFilter) []*hcmv3.HttpFilter {
	var out []*hcmv3.HttpFilter
	add := func(r *rbacv3.RBAC) {
		if r == nil || r.Action == rbacv3.RBAC_LOG {
			return
		}
		out = append(out, envoy.HTTPFilter("envoy.filters.http.rbac."+strconv.Itoa(len(out)), envoy.Any(&httprbacv3.RBAC{Rules: evaluable(r)})))
	}
	var asked *rbacv3.RBAC // what the authorizer that comes next is asked about
	for _, f := range filters {
		var r httprbacv3.RBAC
		switch config := f.GetTypedConfig(); {
		case config.MessageIs(&r):
			read(config.Value, &r)
			add(r.Rules)
			asked = r.ShadowRules
		case config.MessageIs(&authzv3.ExtAuthz{}):
			add(asked)
		}
	}
	return out
}

// evaluable returns rules without what gRPC cannot evaluate. It changes r.
func evaluable(r *rbacv3.RBAC) *rbacv3.RBAC {
	for name, p := range r.Policies {
		if p.Condition == nil && p.CheckedCondition == nil && every(p.Permissions, knownPermission) && every(p.Principals, knownPrincipal) {
			continue
		}
		if r.Action == rbacv3.RBAC_ALLOW {
			delete(r.Policies, name)
			continue
		}
		r.Policies[name] = &rbacv3.Policy{
			Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_Any{Any: true}}},
			Principals:  []*rbacv3.Principal{{Identifier: &rbacv3.Principal_Any{Any: true}}},
		}
	}
	return r
}

func every[M any](list []M, known func(M) bool) bool {
	for _, m := range list {
		if !known(m) {
			return false
		}
	}
	return true
}

// knownPermission reports whether gRPC evaluates a permission as an Envoy does. It has no server name of a connection
// and no metadata of filters.
func knownPermission(p *rbacv3.Permission) bool {
	switch r := p.GetRule().(type) {
	case *rbacv3.Permission_AndRules:
		return every(r.AndRules.Rules, knownPermission)
	case *rbacv3.Permission_OrRules:
		return every(r.OrRules.Rules, knownPermission)
	case *rbacv3.Permission_NotRule:
		return knownPermission(r.NotRule)
	case *rbacv3.Permission_Header:
		return knownHeader(r.Header.GetName())
	case *rbacv3.Permission_Any, *rbacv3.Permission_UrlPath, *rbacv3.Permission_DestinationIp, *rbacv3.Permission_DestinationPort:
		return true
	}
	return false
}

// knownPrincipal reports whether gRPC evaluates a principal. Without a token it has no metadata of one: a match on it
// is as of a call without a token.
func knownPrincipal(p *rbacv3.Principal) bool {
	switch r := p.GetIdentifier().(type) {
	case *rbacv3.Principal_AndIds:
		return every(r.AndIds.Ids, knownPrincipal)
	case *rbacv3.Principal_OrIds:
		return every(r.OrIds.Ids, knownPrincipal)
	case *rbacv3.Principal_NotId:
		return knownPrincipal(r.NotId)
	case *rbacv3.Principal_Header:
		return knownHeader(r.Header.GetName())
	case *rbacv3.Principal_Any, *rbacv3.Principal_Authenticated_, *rbacv3.Principal_DirectRemoteIp, *rbacv3.Principal_RemoteIp,
		*rbacv3.Principal_SourceIp, *rbacv3.Principal_UrlPath, *rbacv3.Principal_Metadata:
		return true
	}
	return false
}

// knownHeader reports whether gRPC lets policies match on a header.
func knownHeader(name string) bool {
	name = strings.ToLower(name)
	return name != ":scheme" && !strings.HasPrefix(name, "grpc-")
}
