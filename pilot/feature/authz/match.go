package authz

import (
	"net/netip"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// pattern is a value of a policy: it is matched for presence (*), by suffix (*abc), by prefix (abc*), or exactly. A
// star anywhere else is a plain character.
type pattern struct {
	kind patternKind
	text string // text without the star
}

type patternKind int

const (
	exact patternKind = iota
	prefix
	suffix
	presence
)

func parsePattern(value string) pattern {
	switch {
	case value == "*":
		return pattern{kind: presence}
	case strings.HasPrefix(value, "*"):
		return pattern{suffix, value[1:]}
	case strings.HasSuffix(value, "*"):
		return pattern{prefix, value[:len(value)-1]}
	}
	return pattern{exact, value}
}

// matcher returns the matcher of a string. Presence, and a prefix or suffix without text, match any string except the
// empty one.
func (p pattern) matcher(ignoreCase bool) *matcherv3.StringMatcher {
	m := &matcherv3.StringMatcher{IgnoreCase: ignoreCase}
	switch {
	case p.kind == exact:
		m.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: p.text}
	case p.text == "":
		return regexMatcher(".+")
	case p.kind == suffix:
		m.MatchPattern = &matcherv3.StringMatcher_Suffix{Suffix: p.text}
	default:
		m.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: p.text}
	}
	return m
}

// regex returns the regular expression of a part of a string. rest is the expression for the part that the pattern
// leaves open.
func (p pattern) regex(rest string) string {
	text := regexp.QuoteMeta(p.text)
	switch p.kind {
	case presence:
		return rest
	case suffix:
		return rest + text
	case prefix:
		return text + rest
	}
	return text
}

// glob returns the regular expression of a value in which rest replaces each star.
func glob(value, rest string) string {
	parts := strings.Split(value, "*")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return strings.Join(parts, rest)
}

// stringMatcher returns the matcher of a value.
func stringMatcher(value string) *matcherv3.StringMatcher { return parsePattern(value).matcher(false) }

// regexMatcher returns a matcher for strings that match a regular expression as a whole.
func regexMatcher(regex string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: regex}}}
}

// headerMatcher returns the matcher of a header.
func headerMatcher(name, value string, ignoreCase bool) *routev3.HeaderMatcher {
	p := parsePattern(value)
	if p.kind == presence {
		return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}
	}
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: p.matcher(ignoreCase)}}
}

// cidr returns the range of an address or a CIDR.
func cidr(value string) (*corev3.CidrRange, error) {
	p, err := netip.ParsePrefix(value)
	if err != nil {
		a, err := netip.ParseAddr(value)
		if err != nil {
			return nil, err
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	return &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: envoy.UInt32(uint32(p.Bits()))}, nil
}

// logic combines matchers: permissions, which match operations, or principals, which match who is calling.
type logic[M any] interface {
	// and returns the matcher of what all matchers of a list match; without any, of everything.
	and(list ...M) M
	// or returns the matcher of what one matcher of a list matches; without any, of nothing.
	or(list ...M) M
	// not returns the matcher of what a matcher does not match.
	not(M) M
}

// orOnly returns a list of matchers, or one matcher if the list is empty. Envoy refuses a listener with an empty list.
func orOnly[M any](list []M, only M) []M {
	if len(list) == 0 {
		return []M{only}
	}
	return list
}

// permissions is the logic of what is asked for.
type permissions struct{}

func (permissions) any() *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_Any{Any: true}}
}

func (p permissions) and(list ...*rbacv3.Permission) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_AndRules{AndRules: &rbacv3.Permission_Set{Rules: orOnly(list, p.any())}}}
}

func (p permissions) or(list ...*rbacv3.Permission) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_OrRules{OrRules: &rbacv3.Permission_Set{Rules: orOnly(list, p.not(p.any()))}}}
}

func (permissions) not(m *rbacv3.Permission) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_NotRule{NotRule: m}}
}

// principals is the logic of who is asking.
type principals struct{}

func (principals) any() *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
}

func (p principals) and(list ...*rbacv3.Principal) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: orOnly(list, p.any())}}}
}

func (p principals) or(list ...*rbacv3.Principal) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: orOnly(list, p.not(p.any()))}}}
}

func (principals) not(m *rbacv3.Principal) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: m}}
}
