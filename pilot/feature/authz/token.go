package authz

import (
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// tokenFilter is the filter that validates tokens, and payload is the metadata key of their claims.
const (
	tokenFilter = "envoy.filters.http.jwt_authn"
	payload     = "payload"
)

// claim matches a claim of the request's token.
func claim(m *matcherv3.ValueMatcher, path ...string) *rbacv3.Principal {
	//nolint:staticcheck // the field that all supported Envoys read
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Metadata{Metadata: metadataMatcher(tokenFilter, m,
		append([]string{payload}, path...)...)}}
}

// requestPrincipals matches the issuer and the subject of the request's token, joined by a slash. Both may contain
// slashes. If matching requests are allowed, the last slash of a value separates the two. If they are denied, each of
// its slashes may separate them, and each of its stars is a wildcard.
func (t translation) requestPrincipals(values []string, keepsOut bool) (*rbacv3.Principal, error) {
	if !t.http {
		return nil, errNoHTTP
	}
	var list []*rbacv3.Principal
	for _, v := range values {
		splits := []tokenOf{splitPrincipal(v)}
		if keepsOut {
			splits = everySplit(v)
		}
		for _, of := range splits {
			list = append(list, principals{}.and(claim(textValue(of.iss), "iss"), claim(textValue(of.sub), "sub")))
		}
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return principals{}.or(list...), nil
}

// tokenOf matches tokens by issuer and subject.
type tokenOf struct{ iss, sub *matcherv3.StringMatcher }

// splitPrincipal returns the matchers of issuer and subject. Issuers are URLs: the last slash separates the two. One
// star at the beginning or at the end of the value is a wildcard. A value without a slash is an issuer without a
// subject, which no token has. If it begins with a star, it is the end of a subject; if it ends with a star, it is the
// beginning of an issuer.
func splitPrincipal(value string) tokenOf {
	p := parsePattern(value)
	iss, sub := pattern{exact, p.text}, pattern{exact, ""}
	i := strings.LastIndexByte(p.text, '/')
	if i >= 0 {
		iss.text, sub.text = p.text[:i], p.text[i+1:]
	}
	switch {
	case p.kind == presence:
		iss, sub = p, p
	case p.kind == suffix && i < 0:
		iss, sub = pattern{kind: presence}, p
	case p.kind == suffix:
		iss.kind = suffix
	case p.kind == prefix && i < 0:
		iss, sub = p, pattern{kind: presence}
	case p.kind == prefix:
		sub.kind = prefix
	}
	return tokenOf{iss.matcher(false), sub.matcher(false)}
}

// maxSplits limits the number of places at which a value is split. A value with more of them matches every token.
const maxSplits = 64

// everySplit returns the matchers of every issuer and subject that, joined by a slash, match a value in which each star
// is a wildcard. No issuer ends within the "://" of a URL.
func everySplit(value string) []tokenOf {
	var list []tokenOf
	for i, c := range value {
		switch iss := value[:i]; {
		case len(list) == maxSplits:
			return everySplit("*")
		case c == '*':
			list = append(list, tokenOf{globMatcher(value[:i+1]), globMatcher(value[i:])})
		case c == '/' && !strings.HasSuffix(iss, ":") && !strings.HasSuffix(iss, ":/"):
			list = append(list, tokenOf{globMatcher(iss), globMatcher(value[i+1:])})
		}
	}
	if list == nil {
		list = append(list, splitPrincipal(value))
	}
	return list
}

// globMatcher returns the matcher of a value in which each star is a wildcard.
func globMatcher(value string) *matcherv3.StringMatcher {
	p := parsePattern(value)
	switch {
	case strings.Trim(value, "*") == "" && value != "":
		return pattern{kind: presence}.matcher(false)
	case strings.Contains(p.text, "*"):
		return regexMatcher(glob(value, ".*"))
	}
	return p.matcher(false)
}

// claims matches a claim that is one of the values, or a list that contains one of them.
func (t translation) claims(path ...string) matchAny[*rbacv3.Principal] {
	return func(values []string, _ bool) (*rbacv3.Principal, error) {
		if !t.http {
			return nil, errNoHTTP
		}
		list := lists.Map(values, func(v string) *matcherv3.ValueMatcher { return textValue(stringMatcher(v)) })
		one := anyOf(list)
		return claim(anyOf([]*matcherv3.ValueMatcher{elementOf(one), one}), path...), nil
	}
}

// metadataMatcher matches a value that a filter has stored under a path of keys.
func metadataMatcher(filter string, m *matcherv3.ValueMatcher, path ...string) *matcherv3.MetadataMatcher {
	out := &matcherv3.MetadataMatcher{Filter: filter, Value: m}
	for _, key := range path {
		out.Path = append(out.Path, &matcherv3.MetadataMatcher_PathSegment{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: key}})
	}
	return out
}

func textValue(m *matcherv3.StringMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: m}}
}

// elementOf matches a list with an element that m matches.
func elementOf(m *matcherv3.ValueMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_ListMatch{
		ListMatch: &matcherv3.ListMatcher{MatchPattern: &matcherv3.ListMatcher_OneOf{OneOf: m}},
	}}
}

// anyOf matches a value that at least one of the matchers matches.
func anyOf(all []*matcherv3.ValueMatcher) *matcherv3.ValueMatcher {
	if len(all) == 1 {
		return all[0]
	}
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_OrMatch{OrMatch: &matcherv3.OrMatcher{ValueMatchers: all}}}
}
