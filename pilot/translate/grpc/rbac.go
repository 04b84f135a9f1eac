package grpc

import (
	"slices"
	"strconv"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// policies adapts the authorization policies among an Envoy's filters to gRPC: each gets a name of its own, and dry
// runs are left out. A condition that gRPC cannot evaluate never allows anything. An ALLOW rule with one is left out, a
// DENY rule denies everything. gRPC asks no authorizer, so requests about which one would be asked are denied.
func policies(filters []*hcmv3.HttpFilter) []*hcmv3.HttpFilter {
	var out []*hcmv3.HttpFilter
	add := func(r *rbacv3.RBAC) {
		if r == nil || r.Action == rbacv3.RBAC_LOG {
			return
		}
		out = append(out, envoy.HTTPFilter("envoy.filters.http.rbac."+strconv.Itoa(len(out)), envoy.Any(&httprbacv3.RBAC{Rules: evaluable(r)})))
	}
	var asked *rbacv3.RBAC // requests about which the next authorizer is asked
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

// evaluable returns rules without conditions that gRPC cannot evaluate. It changes r.
func evaluable(r *rbacv3.RBAC) *rbacv3.RBAC {
	for name, p := range r.Policies {
		if p.Condition == nil && p.CheckedCondition == nil && every(p.Permissions, adaptPermission) && every(p.Principals, adaptPrincipal) {
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

func every[M any](list []M, adapt func(M) bool) bool {
	return !slices.ContainsFunc(list, func(m M) bool { return !adapt(m) })
}

// adaptPermission changes a permission to one that every version of gRPC evaluates as an Envoy does. It returns false
// if there is none: gRPC has no server name of a connection and no metadata of filters.
func adaptPermission(p *rbacv3.Permission) bool {
	switch r := p.GetRule().(type) {
	case *rbacv3.Permission_AndRules:
		return every(r.AndRules.Rules, adaptPermission)
	case *rbacv3.Permission_OrRules:
		return every(r.OrRules.Rules, adaptPermission)
	case *rbacv3.Permission_NotRule:
		return adaptPermission(r.NotRule)
	case *rbacv3.Permission_Header:
		return adaptHeader(r.Header)
	case *rbacv3.Permission_Any, *rbacv3.Permission_UrlPath, *rbacv3.Permission_DestinationIp, *rbacv3.Permission_DestinationPort:
		return true
	}
	return false
}

// adaptPrincipal is adaptPermission for a principal. gRPC takes the address of the peer for the address of a client
// behind proxies. It knows no tokens, so a matcher of a claim matches no call. Old versions skip such a matcher, and a
// list of only these would match every call, so a matcher that matches nothing replaces it.
func adaptPrincipal(p *rbacv3.Principal) bool {
	switch r := p.GetIdentifier().(type) {
	case *rbacv3.Principal_AndIds:
		return every(r.AndIds.Ids, adaptPrincipal)
	case *rbacv3.Principal_OrIds:
		return every(r.OrIds.Ids, adaptPrincipal)
	case *rbacv3.Principal_NotId:
		return adaptPrincipal(r.NotId)
	case *rbacv3.Principal_Header:
		return adaptHeader(r.Header)
	case *rbacv3.Principal_Metadata:
		p.Identifier = &rbacv3.Principal_NotId{NotId: &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}}
		return !r.Metadata.Invert //nolint:staticcheck // the field that package authz sets
	case *rbacv3.Principal_Any, *rbacv3.Principal_Authenticated_, *rbacv3.Principal_DirectRemoteIp, *rbacv3.Principal_UrlPath:
		return true
	}
	return false
}

// adaptHeader changes the name of a header to gRPC's. It reports whether gRPC lets policies match the header.
func adaptHeader(h *routev3.HeaderMatcher) bool {
	if h.Name = strings.ToLower(h.Name); h.Name == "host" {
		h.Name = ":authority"
	}
	return h.Name != ":scheme" && !strings.HasPrefix(h.Name, "grpc-")
}
