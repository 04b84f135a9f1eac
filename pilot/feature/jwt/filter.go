package jwt

import (
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// filterName is also the metadata namespace of the payloads of valid tokens, under the key payload.
const (
	filterName = "envoy.filters.http.jwt_authn"
	payload    = "payload"
)

// cacheFor is the time in seconds for which a proxy that fetches keys caches them.
const cacheFor = 5 * 60

// filtersReadOf clears the fields that the filter does not depend on.
func filtersReadOf(c feature.Chain) feature.Chain {
	return feature.Chain{Direction: c.Direction, Selection: c.Selection}
}

// httpFilters returns the filter that validates the tokens of requests by the rules of all policies.
func (m Mode) httpFilters(c feature.Chain) []*hcmv3.HttpFilter {
	if c.Selection.Empty() || c.Direction == feature.Outbound {
		return nil
	}
	var rules []*securityv1.JWTRule
	for policy := range c.Selection.Objects.All {
		rules = append(rules, spec(policy).JwtRules...)
	}
	slices.SortStableFunc(rules, func(a, b *securityv1.JWTRule) int { return strings.Compare(a.Issuer, b.Issuer) })

	filter := &jwtv3.JwtAuthentication{BypassCorsPreflight: true, Providers: map[string]*jwtv3.JwtProvider{}}
	for i, r := range rules {
		p := m.provider(r, c.Selection)
		p.ClearRouteCache = c.Direction == feature.Gateway // routes of gateways may depend on claims
		filter.Providers[providerName(i)] = p
	}
	filter.Rules = []*jwtv3.RequirementRule{{
		Match:           &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		RequirementType: &jwtv3.RequirementRule_Requires{Requires: requirement(rules)},
	}}
	return []*hcmv3.HttpFilter{envoy.HTTPFilter(filterName, envoy.Any(filter))}
}

// providerName returns the name of the provider of a rule, by the index of the rule.
func providerName(rule int) string { return "origins-" + strconv.Itoa(rule) }

// requirement returns the condition for requests: a valid token of any rule, or no token for any of them. If rules
// require their tokens, each of these must be there and valid, and tokens of other rules may be missing, but not
// invalid.
func requirement(rules []*securityv1.JWTRule) *jwtv3.JwtRequirement {
	var valid, each []*jwtv3.JwtRequirement
	required := false
	for i, r := range rules {
		p := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_ProviderName{ProviderName: providerName(i)}}
		valid = append(valid, p)
		if r.Presence == securityv1.JWTRule_REQUIRED {
			required = true
		} else {
			p = anyOf(p, &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_AllowMissing{AllowMissing: &emptypb.Empty{}}})
		}
		each = append(each, p)
	}
	if len(each) == 1 {
		return each[0]
	}
	all := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAll{
		RequiresAll: &jwtv3.JwtRequirementAndList{Requirements: each},
	}}
	if required {
		return all
	}
	return anyOf(append(valid, all)...)
}

func anyOf(list ...*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAny{RequiresAny: &jwtv3.JwtRequirementOrList{Requirements: list}}}
}

// provider returns how the tokens of a rule are found, verified and passed on.
func (m Mode) provider(r *securityv1.JWTRule, s feature.Selection) *jwtv3.JwtProvider {
	delimited := append([]string{"permission", "scope"}, r.SpaceDelimitedClaims...)
	slices.Sort(delimited)
	delimited = slices.Compact(delimited)
	p := &jwtv3.JwtProvider{
		Issuer: r.Issuer, Audiences: r.Audiences,
		FromParams: r.FromParams, FromCookies: r.FromCookies,
		Forward: r.ForwardOriginalToken, ForwardPayloadHeader: r.OutputPayloadToHeader,
		PayloadInMetadata:          payload,
		NormalizePayloadInMetadata: &jwtv3.JwtProvider_NormalizePayload{SpaceDelimitedClaims: delimited},
	}
	for _, h := range r.FromHeaders {
		p.FromHeaders = append(p.FromHeaders, &jwtv3.JwtHeader{Name: h.Name, ValuePrefix: h.Prefix})
	}
	for _, h := range r.OutputClaimToHeaders {
		p.ClaimToHeaders = append(p.ClaimToHeaders, &jwtv3.JwtClaimToHeader{HeaderName: h.Header, ClaimName: h.Claim})
	}
	if m.byProxies(r, s) {
		p.JwksSourceSpecifier = &jwtv3.JwtProvider_RemoteJwks{RemoteJwks: remote(r)}
		return p
	}
	p.JwksSourceSpecifier = &jwtv3.JwtProvider_LocalJwks{
		LocalJwks: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: m.keys(r, s)}},
	}
	return p
}

// remote returns how a proxy fetches the keys of a rule: by the cluster of the service that has the URI's host. If
// there is none, it fetches nothing, and accepts no token.
func remote(r *securityv1.JWTRule) *jwtv3.RemoteJwks {
	host, port := hostOf(r.JwksUri)
	return &jwtv3.RemoteJwks{
		HttpUri: &corev3.HttpUri{
			Uri: r.JwksUri, Timeout: durationpb.New(timeout(r)),
			HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: names.Cluster(names.Outbound, port, "", host)},
		},
		CacheDuration: &durationpb.Duration{Seconds: cacheFor},
	}
}
