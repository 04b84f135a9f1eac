package trace

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	uritemplatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// httpRBAC evaluates a filter of policies for requests.
func httpRBAC(x *stream, f filter, m *httprbacv3.RBAC) bool {
	route := &httprbacv3.RBACPerRoute{}
	if x.override(f, route) {
		m = route.GetRbac() // nil if the route has none
	}
	if m.GetMatcher() != nil {
		x.depends("the matcher of HTTP filter %s is not evaluated, and may deny it", x.named(f))
	}
	x.shadow(m.GetShadowRules(), m.GetShadowRulesStatPrefix())
	return m.GetRules() == nil || authorize(x.Answer, m.GetRules(), x.request, true)
}

// networkRBAC evaluates a filter of policies for connections.
func networkRBAC(x *stream, f filter, m *tcprbacv3.RBAC) bool {
	if m.GetMatcher() != nil {
		x.depends("the matcher of network filter %s is not evaluated, and may close the connection", x.named(f))
	}
	x.shadow(m.GetShadowRules(), m.GetShadowRulesStatPrefix())
	return m.GetRules() == nil || authorize(x.Answer, m.GetRules(), x.request, false)
}

// shadow records the results of dry-run rules, as the filter does for later filters.
func (x *stream) shadow(rules *rbacv3.RBAC, prefix string) {
	if rules == nil {
		return
	}
	matched := ""
	for _, name := range slices.Sorted(maps.Keys(rules.GetPolicies())) {
		if policyMismatch(rules.GetPolicies()[name], x.request) == "" {
			matched = name
			break
		}
	}
	result := "allowed"
	if (matched != "") == (rules.GetAction() == rbacv3.RBAC_DENY) {
		result = "denied"
	}
	said := maps.Clone(x.request.said)
	lists.Put(&said, prefix+"shadow_engine_result", result)
	if matched != "" {
		said[prefix+"shadow_effective_policy_id"] = matched
	}
	x.request.said = said
}

// saidMatches reports whether metadata that an earlier filter of policies or of tokens has set matches a matcher.
func saidMatches(m *matcherv3.MetadataMatcher, r Request) bool {
	if m.GetFilter() == tokenFilter {
		return payloadMatches(m, r)
	}
	matches := false
	if strings.HasSuffix(m.GetFilter(), ".rbac") && len(m.GetPath()) == 1 {
		value, there := r.said[m.GetPath()[0].GetKey()]
		matches = there && matchString(m.GetValue().GetStringMatch(), value)
	}
	return matches != m.GetInvert()
}

// policyName is the form of a policy's name: ns[a]-policy[web]-rule[0].
var policyName = regexp.MustCompile(`^(.*-)?ns\[(.*)\]-policy\[(.*)\]-rule\[(\d+)\](-deny-.*)?$`)

// originOf returns the rule of an object from which a policy of a filter was made.
func originOf(name string) Origin {
	part := policyName.FindStringSubmatch(name)
	if part == nil {
		return Origin{}
	}
	return Origin{Path: "/apis/security.istio.io/v1/namespaces/" + part[2] + "/authorization-policy/" + part[3],
		Field: "spec.rules[" + part[4] + "]"}
}

// authorize reports whether the policies of a filter allow a request, and records a step with the reason.
func authorize(a *Answer, rules *rbacv3.RBAC, r Request, isHTTP bool) bool {
	s := Step{What: "authorization", Name: map[rbacv3.RBAC_Action]string{rbacv3.RBAC_ALLOW: "ALLOW", rbacv3.RBAC_DENY: "DENY",
		rbacv3.RBAC_LOG: "AUDIT"}[rules.GetAction()]}
	matched := ""
	for _, name := range slices.Sorted(maps.Keys(rules.GetPolicies())) {
		why := policyMismatch(rules.GetPolicies()[name], r)
		if why == "" && matched == "" {
			matched = name
			s.Origin = originOf(name)
			continue
		}
		why = cmp.Or(why, "it matches too")
		s.Lost = append(s.Lost, Lost{Name: name, Reason: why, Origin: originOf(name)})
	}
	refused := func(format string, args ...any) bool {
		s.Reason = fmt.Sprintf(format, args...)
		a.step(s)
		status := 0
		if isHTTP {
			status = 403
		}
		a.end(status, "%s", s.Reason)
		return false
	}
	switch {
	case rules.GetAction() == rbacv3.RBAC_DENY && matched != "":
		return refused("%s denies it", matched)
	case rules.GetAction() == rbacv3.RBAC_ALLOW && matched == "":
		return refused("no ALLOW policy allows it, and at least one exists")
	case matched != "":
		s.Reason = matched + " matches"
	default:
		s.Reason = "no policy matches"
	}
	a.step(s)
	return true
}

// policyMismatch returns why a policy does not match, or "" if it does.
func policyMismatch(p *rbacv3.Policy, r Request) string {
	if !slices.ContainsFunc(p.GetPrincipals(), func(x *rbacv3.Principal) bool { return isPrincipal(x, r) }) {
		who := r.Identity + " from " + r.SourceAddress
		if r.Identity == "" {
			who = "the connection has no certificate"
		}
		switch sub, hasToken := r.payload["sub"]; {
		case hasToken:
			who += fmt.Sprintf(", with a token of %v/%v", r.payload["iss"], sub)
		case r.payload != nil:
			who += fmt.Sprintf(", with a token of %v", r.payload["iss"])
		}
		return "the caller matches none of its sources: " + who
	}
	if !slices.ContainsFunc(p.GetPermissions(), func(x *rbacv3.Permission) bool { return isPermitted(x, r) }) {
		return fmt.Sprintf("the request matches none of its operations: %s %s of %s, port %d", r.Method, r.Path, r.Authority, r.Port)
	}
	return ""
}

func isPermitted(p *rbacv3.Permission, r Request) bool {
	switch x := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return x.Any
	case *rbacv3.Permission_AndRules:
		return !slices.ContainsFunc(x.AndRules.GetRules(), func(p *rbacv3.Permission) bool { return !isPermitted(p, r) })
	case *rbacv3.Permission_OrRules:
		return slices.ContainsFunc(x.OrRules.GetRules(), func(p *rbacv3.Permission) bool { return isPermitted(p, r) })
	case *rbacv3.Permission_NotRule:
		return !isPermitted(x.NotRule, r)
	case *rbacv3.Permission_Header:
		return headerMismatch(x.Header, r) == ""
	case *rbacv3.Permission_UrlPath:
		path, _, _ := strings.Cut(r.Path, "?")
		return matchString(x.UrlPath.GetPath(), path)
	case *rbacv3.Permission_DestinationPort:
		return x.DestinationPort == r.Port
	case *rbacv3.Permission_DestinationPortRange:
		return int32(r.Port) >= x.DestinationPortRange.GetStart() && int32(r.Port) < x.DestinationPortRange.GetEnd()
	case *rbacv3.Permission_DestinationIp:
		return within(x.DestinationIp, r.Address)
	case *rbacv3.Permission_RequestedServerName:
		return matchString(x.RequestedServerName, r.SNI)
	case *rbacv3.Permission_UriTemplate:
		path, _, _ := strings.Cut(r.Path, "?")
		t := &uritemplatev3.UriTemplateMatchConfig{}
		return x.UriTemplate.GetTypedConfig().UnmarshalTo(t) == nil && whole(templateRegex(t.GetPathTemplate()), path)
	case *rbacv3.Permission_Metadata:
		return saidMatches(x.Metadata, r) //nolint:staticcheck // the field that is sent
	}
	return false
}

// templateRegex returns the regular expression of a template of paths: one star is a segment, two are any number of
// segments.
func templateRegex(template string) string {
	var out strings.Builder
	for rest := template; rest != ""; {
		at := strings.IndexByte(rest, '*')
		if at < 0 {
			return out.String() + regexp.QuoteMeta(rest)
		}
		out.WriteString(regexp.QuoteMeta(rest[:at]))
		if after, two := strings.CutPrefix(rest[at:], "**"); two {
			out.WriteString(".*")
			rest = after
		} else {
			out.WriteString("[^/]+")
			rest = rest[at+1:]
		}
	}
	return out.String()
}

func isPrincipal(p *rbacv3.Principal, r Request) bool {
	switch x := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return x.Any
	case *rbacv3.Principal_AndIds:
		return !slices.ContainsFunc(x.AndIds.GetIds(), func(p *rbacv3.Principal) bool { return !isPrincipal(p, r) })
	case *rbacv3.Principal_OrIds:
		return slices.ContainsFunc(x.OrIds.GetIds(), func(p *rbacv3.Principal) bool { return isPrincipal(p, r) })
	case *rbacv3.Principal_NotId:
		return !isPrincipal(x.NotId, r)
	case *rbacv3.Principal_Authenticated_:
		return r.Identity != "" && (x.Authenticated.GetPrincipalName() == nil || matchString(x.Authenticated.GetPrincipalName(), r.Identity))
	case *rbacv3.Principal_DirectRemoteIp:
		return within(x.DirectRemoteIp, r.SourceAddress)
	case *rbacv3.Principal_RemoteIp:
		return within(x.RemoteIp, r.SourceAddress)
	case *rbacv3.Principal_Header:
		return headerMismatch(x.Header, r) == ""
	case *rbacv3.Principal_UrlPath:
		path, _, _ := strings.Cut(r.Path, "?")
		return matchString(x.UrlPath.GetPath(), path)
	case *rbacv3.Principal_Metadata: // claims of a token
		return payloadMatches(x.Metadata, r) //nolint:staticcheck // the field that is sent
	}
	return false
}

func within(r *corev3.CidrRange, address string) bool {
	ip, err := netip.ParseAddr(address)
	p, ok := prefix(r)
	return err == nil && ok && p.Contains(ip.Unmap())
}
