package virtualservice

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// routeMatch returns the matcher of a request. If segments is set, a prefix matches whole segments of a path.
func routeMatch(m *networkingv1alpha3.HTTPMatchRequest, segments bool) *routev3.RouteMatch {
	out := &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
	if m == nil {
		return out
	}
	out.CaseSensitive = envoy.Bool(!m.IgnoreUriCase)
	switch u := m.Uri.GetMatchType().(type) {
	case *networkingv1alpha3.StringMatch_Exact:
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: u.Exact}
	case *networkingv1alpha3.StringMatch_Prefix:
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: u.Prefix}
		if path := strings.TrimRight(u.Prefix, "/"); segments && path != "" {
			out.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: path}
		}
	case *networkingv1alpha3.StringMatch_Regex:
		out.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: regex(u.Regex)}
	}
	conditions := func(headers map[string]*networkingv1alpha3.StringMatch, invert bool) {
		for _, name := range sorted(headers) {
			if path, ok := claim(name); ok {
				out.DynamicMetadata = append(out.DynamicMetadata, claimMatch(path, headers[name], invert))
			} else {
				out.Headers = append(out.Headers, headerMatch(name, headers[name], invert))
			}
		}
	}
	conditions(m.Headers, false)
	conditions(m.WithoutHeaders, true)
	for _, p := range []struct {
		name string
		want *networkingv1alpha3.StringMatch
	}{{":method", m.Method}, {":authority", m.Authority}, {":scheme", m.Scheme}} {
		if p.want != nil {
			out.Headers = append(out.Headers, headerMatch(p.name, p.want, false))
		}
	}
	slices.SortStableFunc(out.Headers, func(a, b *routev3.HeaderMatcher) int { return strings.Compare(a.Name, b.Name) })
	for _, name := range sorted(m.QueryParams) {
		out.QueryParameters = append(out.QueryParameters, queryMatch(name, m.QueryParams[name]))
	}
	return out
}

func regex(s string) *matcherv3.RegexMatcher { return &matcherv3.RegexMatcher{Regex: s} }

// stringMatch returns the matcher of a string, or nil if any value matches.
func stringMatch(m *networkingv1alpha3.StringMatch) *matcherv3.StringMatcher {
	switch s := m.GetMatchType().(type) {
	case *networkingv1alpha3.StringMatch_Exact:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s.Exact}}
	case *networkingv1alpha3.StringMatch_Prefix:
		if s.Prefix != "" { // Envoy rejects an empty prefix
			return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: s.Prefix}}
		}
	case *networkingv1alpha3.StringMatch_Regex:
		if s.Regex != "*" { // means "present", and is no regular expression
			return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: regex(s.Regex)}}
		}
	}
	return nil
}

func headerMatch(name string, m *networkingv1alpha3.StringMatch, invert bool) *routev3.HeaderMatcher {
	out := &routev3.HeaderMatcher{Name: name, InvertMatch: invert}
	if s := stringMatch(m); s != nil {
		out.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: s}
		// Otherwise in Envoy the inverted match fails for a request without the header.
		out.TreatMissingHeaderAsEmpty = invert
	} else {
		out.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}
	}
	return out
}

func queryMatch(name string, m *networkingv1alpha3.StringMatch) *routev3.QueryParameterMatcher {
	out := &routev3.QueryParameterMatcher{Name: name}
	if s := stringMatch(m); s != nil {
		out.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_StringMatch{StringMatch: s}
	} else {
		out.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true}
	}
	return out
}

// claim returns the path of a claim for a header name of the form @request.auth.claims.a.b or
// @request.auth.claims[a][b].
func claim(header string) ([]string, bool) {
	rest, ok := strings.CutPrefix(header, "@request.auth.claims")
	switch {
	case !ok || len(rest) < 2:
		return nil, false
	case rest[0] == '.':
		return strings.Split(rest[1:], "."), true
	case rest[0] == '[' && rest[len(rest)-1] == ']':
		return strings.Split(rest[1:len(rest)-1], "]["), true
	}
	return nil, false
}

// claimMatch returns a matcher for a claim that is the string, or a list that contains it.
func claimMatch(path []string, m *networkingv1alpha3.StringMatch, invert bool) *matcherv3.MetadataMatcher {
	out := &matcherv3.MetadataMatcher{
		Filter: "envoy.filters.http.jwt_authn",
		Path:   []*matcherv3.MetadataMatcher_PathSegment{segment("payload")},
		Invert: invert,
	}
	for _, p := range path {
		out.Path = append(out.Path, segment(p))
	}
	s := stringMatch(m)
	if s == nil {
		out.Value = &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_PresentMatch{PresentMatch: true}}
		return out
	}
	is := &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: s}}
	has := &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_ListMatch{
		ListMatch: &matcherv3.ListMatcher{MatchPattern: &matcherv3.ListMatcher_OneOf{OneOf: is}},
	}}
	out.Value = &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_OrMatch{
		OrMatch: &matcherv3.OrMatcher{ValueMatchers: []*matcherv3.ValueMatcher{has, is}},
	}}
	return out
}

func segment(key string) *matcherv3.MetadataMatcher_PathSegment {
	return &matcherv3.MetadataMatcher_PathSegment{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: key}}
}
