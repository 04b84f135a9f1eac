package authz_test

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	tcpauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	uritemplatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// evaluator evaluates filters as Envoy's documentation of their messages says. What it does not know is a panic.
type evaluator struct {
	regexes map[string]*regexp.Regexp
}

// stage is a filter that can refuse, or that notes which rule a request matches, or that asks an authorizer where the
// filter before has noted one.
type stage struct {
	rules, shadow *rbacv3.RBAC
	asks          *matcherv3.MetadataMatcher
}

// stages returns the filters of a chain in a form that is cheap to evaluate. A filter that Envoy refuses is a panic.
func stages(http []*hcmv3.HttpFilter, network []*listenerv3.Filter) []stage {
	var list []stage
	add := func(a *anypb.Any) {
		m, err := a.UnmarshalNew()
		if err != nil {
			panic(err)
		}
		if err := m.(interface{ ValidateAll() error }).ValidateAll(); err != nil {
			panic(err)
		}
		switch m := m.(type) {
		case *httprbacv3.RBAC:
			list = append(list, stage{rules: m.Rules, shadow: m.ShadowRules})
		case *tcprbacv3.RBAC:
			list = append(list, stage{rules: m.Rules, shadow: m.ShadowRules})
		case *httpauthzv3.ExtAuthz:
			list = append(list, stage{asks: m.FilterEnabledMetadata})
		case *tcpauthzv3.ExtAuthz:
			list = append(list, stage{asks: m.FilterEnabledMetadata})
		default:
			panic(a.TypeUrl)
		}
	}
	for _, f := range http {
		add(f.GetTypedConfig())
	}
	for _, f := range network {
		add(f.GetTypedConfig())
	}
	return list
}

// decide returns what filters make of a request.
func (e *evaluator) decide(filters []stage, r *request) verdict {
	v, noted := verdict{allowed: true}, ""
	for _, f := range filters {
		if id, matched := e.matches(f.rules, r); f.rules != nil && matched != (f.rules.Action == rbacv3.RBAC_ALLOW) &&
			f.rules.Action != rbacv3.RBAC_LOG {
			_ = id
			v.allowed = false
		}
		if id, matched := e.matches(f.shadow, r); matched {
			noted = id
		}
		if f.asks != nil && e.text(f.asks.GetValue().GetStringMatch(), noted) {
			v.asked = true
		}
	}
	return v
}

// matches returns the name of a policy that a request matches.
func (e *evaluator) matches(rules *rbacv3.RBAC, r *request) (id string, ok bool) {
	for name, p := range rules.GetPolicies() {
		if slices.ContainsFunc(p.Permissions, func(m *rbacv3.Permission) bool { return e.permission(m, r) }) &&
			slices.ContainsFunc(p.Principals, func(m *rbacv3.Principal) bool { return e.principal(m, r) }) {
			return name, true
		}
	}
	return "", false
}

func (e *evaluator) permission(m *rbacv3.Permission, r *request) bool {
	is := func(m *rbacv3.Permission) bool { return e.permission(m, r) }
	switch m := m.Rule.(type) {
	case *rbacv3.Permission_Any:
		return m.Any
	case *rbacv3.Permission_AndRules:
		return !slices.ContainsFunc(m.AndRules.Rules, func(m *rbacv3.Permission) bool { return !is(m) })
	case *rbacv3.Permission_OrRules:
		return slices.ContainsFunc(m.OrRules.Rules, is)
	case *rbacv3.Permission_NotRule:
		return !is(m.NotRule)
	case *rbacv3.Permission_Header:
		return e.header(m.Header, r)
	case *rbacv3.Permission_UrlPath:
		path, _, _ := strings.Cut(r.path, "?")
		return r.http && e.text(m.UrlPath.GetPath(), path)
	case *rbacv3.Permission_UriTemplate:
		c := &uritemplatev3.UriTemplateMatchConfig{}
		if err := m.UriTemplate.TypedConfig.UnmarshalTo(c); err != nil {
			panic(err)
		}
		path, _, _ := strings.Cut(r.path, "?")
		return r.http && e.regex(template(c.PathTemplate)).MatchString(path)
	case *rbacv3.Permission_DestinationIp:
		return within(m.DestinationIp, r.destination)
	case *rbacv3.Permission_DestinationPort:
		return int(m.DestinationPort) == r.port
	case *rbacv3.Permission_RequestedServerName:
		return e.text(m.RequestedServerName, r.sni)
	case *rbacv3.Permission_Metadata:
		return e.metadata(m.Metadata, r) //nolint:staticcheck // Rules use the deprecated field.
	}
	panic(m.String())
}

// template returns the regular expression of a template: a star is a part of a path, two are any number of parts.
func template(text string) string {
	var b strings.Builder
	for i, part := range strings.Split(text, "/") {
		if i > 0 {
			b.WriteString("/")
		}
		switch part {
		case "*":
			b.WriteString("[a-zA-Z0-9._~%!$&'()*+,;:@=-]+")
		case "**":
			b.WriteString("[a-zA-Z0-9._~%!$&'()*+,;:@=/-]*")
		default:
			b.WriteString(regexp.QuoteMeta(part))
		}
	}
	return b.String()
}

func (e *evaluator) principal(m *rbacv3.Principal, r *request) bool {
	is := func(m *rbacv3.Principal) bool { return e.principal(m, r) }
	switch m := m.Identifier.(type) {
	case *rbacv3.Principal_Any:
		return m.Any
	case *rbacv3.Principal_AndIds:
		return !slices.ContainsFunc(m.AndIds.Ids, func(m *rbacv3.Principal) bool { return !is(m) })
	case *rbacv3.Principal_OrIds:
		return slices.ContainsFunc(m.OrIds.Ids, is)
	case *rbacv3.Principal_NotId:
		return !is(m.NotId)
	case *rbacv3.Principal_Authenticated_:
		return r.domain != "" && e.text(m.Authenticated.PrincipalName, "spiffe://"+r.principal())
	case *rbacv3.Principal_DirectRemoteIp:
		return within(m.DirectRemoteIp, r.source)
	case *rbacv3.Principal_RemoteIp:
		return within(m.RemoteIp, r.remote)
	case *rbacv3.Principal_Header:
		return e.header(m.Header, r)
	case *rbacv3.Principal_Metadata:
		return e.metadata(m.Metadata, r) //nolint:staticcheck // Rules use the deprecated field.
	}
	panic(m.String())
}

func (e *evaluator) header(m *routev3.HeaderMatcher, r *request) bool {
	if m.InvertMatch || m.TreatMissingHeaderAsEmpty {
		panic(m.String())
	}
	value, there := r.headers[strings.ToLower(m.Name)]
	switch {
	case !r.http:
		there = false
	case m.Name == ":authority":
		value, there = r.host, true
	case m.Name == ":method":
		value, there = r.method, true
	}
	switch s := m.HeaderMatchSpecifier.(type) {
	case *routev3.HeaderMatcher_PresentMatch:
		return there == s.PresentMatch
	case *routev3.HeaderMatcher_StringMatch:
		return there && e.text(s.StringMatch, value)
	}
	panic(m.String())
}

func (e *evaluator) metadata(m *matcherv3.MetadataMatcher, r *request) bool {
	var at any
	switch m.Filter {
	case filter:
		at = r.says
	case "envoy.filters.http.jwt_authn":
		at = map[string]any{"payload": r.claims}
	default:
		panic(m.String())
	}
	for _, p := range m.Path {
		in, _ := at.(map[string]any)
		at = in[p.GetKey()]
	}
	return e.value(m.Value, at)
}

func (e *evaluator) value(m *matcherv3.ValueMatcher, v any) bool {
	switch m := m.MatchPattern.(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		s, ok := v.(string)
		return ok && e.text(m.StringMatch, s)
	case *matcherv3.ValueMatcher_ListMatch:
		list, _ := v.([]any)
		return slices.ContainsFunc(list, func(v any) bool { return e.value(m.ListMatch.GetOneOf(), v) })
	case *matcherv3.ValueMatcher_OrMatch:
		return slices.ContainsFunc(m.OrMatch.ValueMatchers, func(m *matcherv3.ValueMatcher) bool { return e.value(m, v) })
	}
	panic(m.String())
}

func (e *evaluator) text(m *matcherv3.StringMatcher, s string) bool {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return fold(s) == fold(p.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(fold(s), fold(p.Prefix))
	case *matcherv3.StringMatcher_Suffix:
		return strings.HasSuffix(fold(s), fold(p.Suffix))
	case *matcherv3.StringMatcher_SafeRegex:
		return e.regex(p.SafeRegex.Regex).MatchString(s)
	}
	panic(m.String())
}

// regex returns a regular expression that matches whole texts.
func (e *evaluator) regex(text string) *regexp.Regexp {
	if e.regexes[text] == nil {
		e.regexes[text] = regexp.MustCompile("^(?:" + text + ")$")
	}
	return e.regexes[text]
}

func within(m *corev3.CidrRange, a netip.Addr) bool {
	p, err := netip.ParsePrefix(m.AddressPrefix + "/" + strconv.Itoa(int(m.PrefixLen.GetValue())))
	return err == nil && p.Contains(a)
}
