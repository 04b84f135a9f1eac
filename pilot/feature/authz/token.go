package authz

import (
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// tokenFilter is the filter that validates tokens, and payload the key under which it says what is in them.
const (
	tokenFilter = "envoy.filters.http.jwt_authn"
	payload     = "payload"
)

// claim matches a claim of the request's token.
func claim(m *matcherv3.ValueMatcher, path ...string) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Metadata{Metadata: metadataMatcher(tokenFilter, m, append([]string{payload}, path...)...)}}
}

// requestPrincipals matches the issuer and the subject of the request's token, joined by a slash. Both may have slashes
// themselves. In what lets requests in, the last slash of a value separates the two. In what keeps them out, each of
// its slashes may.
func (t translation) requestPrincipals(keepsOut bool) func(values []string) (*rbacv3.Principal, error) {
	return func(values []string) (*rbacv3.Principal, error) {
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
				list = append(list, principals().and(claim(textValue(of.iss), "iss"), claim(textValue(of.sub), "sub")))
			}
		}
		if len(list) == 1 {
			return list[0], nil
		}
		return principals().or(list...), nil
	}
}

// tokenOf matches tokens by issuer and subject.
type tokenOf struct{ iss, sub *matcherv3.StringMatcher }

// splitPrincipal returns the matchers of issuer and subject. Issuers are URLs: the last slash separates the two.
func splitPrincipal(value string) tokenOf {
	i := strings.LastIndexByte(value, '/')
	p := parsePattern(value)
	switch {
	case p.kind == presence:
		return tokenOf{p.matcher(false), p.matcher(false)}
	case i < 0 && p.kind == suffix:
		return tokenOf{regexMatcher(".+"), p.matcher(false)}
	case i < 0:
		return tokenOf{p.matcher(false), regexMatcher(".+")}
	}
	return tokenOf{stringMatcher(value[:i]), stringMatcher(value[i+1:])}
}

// everySplit returns the matchers of each issuer and subject that joined by a slash match a value. No issuer ends
// within the "://" of a URL.
func everySplit(value string) []tokenOf {
	var list []tokenOf
	switch p := parsePattern(value); {
	case p.kind == suffix && p.text != "/":
		list = append(list, tokenOf{regexMatcher(".+"), p.matcher(false)})
	case p.kind == prefix:
		list = append(list, tokenOf{p.matcher(false), regexMatcher(".+")})
	case !strings.Contains(value, "/"):
		return []tokenOf{splitPrincipal(value)}
	}
	for i := range len(value) {
		iss := value[:i]
		if value[i] == '/' && !strings.HasSuffix(iss, ":") && !strings.HasSuffix(iss, ":/") {
			list = append(list, tokenOf{stringMatcher(iss), stringMatcher(value[i+1:])})
		}
	}
	return list
}

// claims matches a claim that is one of the values, or a list with one of them.
func (t translation) claims(path ...string) func(values []string) (*rbacv3.Principal, error) {
	return func(values []string) (*rbacv3.Principal, error) {
		if !t.http {
			return nil, errNoHTTP
		}
		var list []*matcherv3.ValueMatcher
		for _, v := range values {
			list = append(list, textValue(stringMatcher(v)))
		}
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
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_ListMatch{ListMatch: &matcherv3.ListMatcher{MatchPattern: &matcherv3.ListMatcher_OneOf{OneOf: m}}}}
}

// anyOf matches what one of all matches.
func anyOf(all []*matcherv3.ValueMatcher) *matcherv3.ValueMatcher {
	if len(all) == 1 {
		return all[0]
	}
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_OrMatch{OrMatch: &matcherv3.OrMatcher{ValueMatchers: all}}}
}
