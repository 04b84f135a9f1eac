package trace

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	uritemplatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// httpRBAC evaluates a filter of policies for requests.
func httpRBAC(x *stream, f filter, m *httprbacv3.RBAC) bool {
	route := &httprbacv3.RBACPerRoute{}
	if x.override(f, route) {
		m = route.GetRbac() // nil if the route has none
	}
	if m.GetMatcher() != nil {
		x.dependsOn(accesslog.Policy, 0, "the matcher of HTTP filter %s is not evaluated, and may deny it", x.named(f))
	}
	x.shadow(m.GetShadowRules(), m.GetShadowRulesStatPrefix())
	return m.GetRules() == nil || x.authorize(f, m.GetRules())
}

// networkRBAC evaluates a filter of policies for connections.
func networkRBAC(x *stream, f filter, m *tcprbacv3.RBAC) bool {
	if m.GetMatcher() != nil {
		x.dependsOn(accesslog.Policy, 0, "the matcher of network filter %s is not evaluated, and may close the connection", x.named(f))
	}
	x.shadow(m.GetShadowRules(), m.GetShadowRulesStatPrefix())
	return m.GetRules() == nil || x.authorize(f, m.GetRules())
}

// said is what a filter of policies has recorded for later filters.
type said struct {
	value string
	on    []string // what it depends on
}

// shadow records the results of dry-run rules, as the filter does for later filters.
func (x *stream) shadow(rules *rbacv3.RBAC, prefix string) {
	if rules == nil {
		return
	}
	matched, matches := "", known(false)
	for _, name := range slices.Sorted(maps.Keys(rules.GetPolicies())) {
		if t, _ := x.matches(rules.GetPolicies()[name]); t.possible() {
			matched, matches = name, truth{t.holds, append(matches.on, t.on...)}
			if t.certain() {
				break
			}
		}
	}
	result := "allowed"
	if (matched != "") == (rules.GetAction() == rbacv3.RBAC_DENY) {
		result = "denied"
	}
	all := maps.Clone(x.said)
	lists.Put(&all, prefix+"shadow_engine_result", said{result, matches.on})
	if matched != "" {
		all[prefix+"shadow_effective_policy_id"] = said{matched, matches.on}
	}
	x.said = all
}

// saidMatches reports whether metadata that an earlier filter has set matches a matcher.
func (x *stream) saidMatches(m *matcherv3.MetadataMatcher) truth {
	if m.GetFilter() == tokenFilter {
		if x.tokenOn != "" {
			return unknown(x.tokenOn)
		}
		return known(x.payloadMatches(m))
	}
	if !strings.HasSuffix(m.GetFilter(), ".rbac") || len(m.GetPath()) != 1 {
		return unknown("the metadata of filter " + m.GetFilter())
	}
	value, there := x.said[m.GetPath()[0].GetKey()]
	matches := there && matchString(m.GetValue().GetStringMatch(), value.value)
	return truth{matches != m.GetInvert(), value.on}
}

// unasked ends the names of policies that deny what an authorizer would decide, because none can be asked.
const unasked = "-deny-due-to-bad-CUSTOM-action"

// actionNames are the actions of policies, as users write them.
var actionNames = map[rbacv3.RBAC_Action]string{rbacv3.RBAC_ALLOW: "ALLOW", rbacv3.RBAC_DENY: "DENY", rbacv3.RBAC_LOG: "AUDIT"}

// authorize reports whether the policies of a filter may allow a request, and records a step with the reason.
func (x *stream) authorize(f filter, rules *rbacv3.RBAC) bool {
	s := Step{What: "authorization", Name: actionNames[rules.GetAction()]}
	matched := ""
	var maybe []string // policies that may match
	on := truth{}
	for _, name := range slices.Sorted(maps.Keys(rules.GetPolicies())) {
		t, why := x.matches(rules.GetPolicies()[name])
		switch {
		case t.certain() && matched == "":
			matched = name
			s.Origin = PolicyOrigin(name)
			continue
		case t.certain():
			why = "it matches too"
		case t.possible():
			why = "whether it matches depends on " + t.text()
			maybe, on.on = append(maybe, name), append(on.on, t.on...)
		}
		s.Lost = append(s.Lost, Lost{Name: name, Reason: why, Origin: PolicyOrigin(name)})
	}
	isDenied, isAllowed := rules.GetAction() == rbacv3.RBAC_DENY, rules.GetAction() == rbacv3.RBAC_ALLOW
	refused := isDenied && matched != "" || isAllowed && matched == "" && len(maybe) == 0
	switch {
	case isDenied && matched != "":
		s.Reason, s.Unasked = matched+" denies it", strings.HasSuffix(matched, unasked)
		if s.Origin.Path == "" {
			s.Reason = matched + x.of(Origin{Filter: f.name}) + " denies it"
		}
	case refused && slices.ContainsFunc(s.Lost, func(l Lost) bool { return l.Reason != noRules }):
		s.Reason = "no ALLOW policy allows it, and at least one exists"
	case refused && !x.HTTP:
		s.Reason = "the ALLOW policies have no rules for connections, and allow none: rules with fields of HTTP are for requests alone"
	case refused:
		s.Reason = "the ALLOW policies have no rules, and allow nothing"
	case matched != "":
		s.Reason = matched + " matches"
	case len(maybe) > 0:
		s.Reason = "that depends on " + on.text()
	default:
		s.Reason = "no policy matches"
	}
	x.step(s)
	if refused {
		status := 0
		if x.HTTP {
			status = 403
		}
		x.end(accesslog.Policy, status, "%s", s.Reason)
		x.Rule = s.Origin
		return false
	}
	if matched == "" && len(maybe) > 0 && (isDenied || isAllowed) {
		x.dependsOn(accesslog.Policy, 0, "%s: that depends on %s", x.mayRefuse(f, maybe, isDenied), on.text())
	}
	return true
}

// mayRefuse says that policies of a filter may refuse a request.
func (x *stream) mayRefuse(f filter, policies []string, denies bool) string {
	verb := " may not allow it"
	if denies {
		verb = " may deny it"
	}
	var objects []string
	for _, name := range policies {
		o := strings.TrimPrefix(x.of(PolicyOrigin(name)), " of ")
		if o == "" {
			o = "policy " + name + " of filter " + x.named(f)
		}
		if !slices.Contains(objects, o) {
			objects = append(objects, o)
		}
	}
	return strings.Join(objects, " or ") + verb
}

// noRules is the reason why a policy without rules does not match.
const noRules = "it has no rules, and matches nothing"

// matchesNothing reports whether a policy was made of an object without rules.
func matchesNothing(p *rbacv3.Policy) bool {
	return len(p.GetPrincipals()) == 1 && p.GetPrincipals()[0].GetNotId().GetAny() ||
		len(p.GetPermissions()) == 1 && p.GetPermissions()[0].GetNotRule().GetAny()
}

// matches reports whether a policy matches the request, and why not.
func (x *stream) matches(p *rbacv3.Policy) (truth, string) {
	r := x.request
	if matchesNothing(p) {
		return known(false), noRules
	}
	caller := some(p.GetPrincipals(), x.isPrincipal)
	if !caller.possible() {
		if len(p.GetPrincipals()) == 0 {
			return caller, "it has no principals, and matches no caller"
		}
		if on := x.unmet(p.GetPrincipals()[0]); on != "" {
			return caller, "its condition on " + on + " is not met"
		}
		return caller, "the caller matches none of its sources: " + x.caller()
	}
	operation := some(p.GetPermissions(), x.isPermitted)
	if !operation.possible() {
		if len(p.GetPermissions()) == 0 {
			return operation, "it has no permissions, and matches no request"
		}
		if on := x.unmetPermission(p.GetPermissions()[0]); on != "" {
			return operation, "its condition on " + on + " is not met"
		}
		return operation, fmt.Sprintf("the request matches none of its operations: %s %s of %s, port %d", r.Method, r.Path, r.Authority, x.port)
	}
	if p.GetCondition() != nil || p.GetCheckedCondition() != nil {
		operation = unknown("its condition, which is not evaluated")
	}
	return every([]truth{caller, operation}, func(t truth) truth { return t }), ""
}

// unmet returns what the condition reads because of which a principal does not match, or "" if it is a source.
func (x *stream) unmet(p *rbacv3.Principal) string {
	switch m := p.GetIdentifier().(type) {
	case *rbacv3.Principal_AndIds:
		for _, id := range m.AndIds.GetIds() {
			if !x.isPrincipal(id).possible() {
				return x.unmet(id)
			}
		}
	case *rbacv3.Principal_OrIds:
		if len(m.OrIds.GetIds()) > 0 {
			return x.unmet(m.OrIds.GetIds()[0])
		}
	case *rbacv3.Principal_NotId:
		return x.unmet(m.NotId)
	case *rbacv3.Principal_Header:
		return "header " + m.Header.GetName()
	case *rbacv3.Principal_Metadata:
		read := m.Metadata //nolint:staticcheck // the field that is sent
		if claim := claimPath(read); read.GetFilter() == tokenFilter && claim != "iss" && claim != "sub" {
			return "claim " + claim
		}
	}
	return ""
}

// unmetPermission is unmet for a permission: "" says that it is an operation.
func (x *stream) unmetPermission(p *rbacv3.Permission) string {
	switch m := p.GetRule().(type) {
	case *rbacv3.Permission_AndRules:
		for _, rule := range m.AndRules.GetRules() {
			if !x.isPermitted(rule).possible() {
				return x.unmetPermission(rule)
			}
		}
	case *rbacv3.Permission_OrRules:
		if len(m.OrRules.GetRules()) > 0 {
			return x.unmetPermission(m.OrRules.GetRules()[0])
		}
	case *rbacv3.Permission_NotRule:
		return x.unmetPermission(m.NotRule)
	case *rbacv3.Permission_RequestedServerName:
		return fmt.Sprintf("the server name of the TLS, which is %q,", x.request.SNI)
	case *rbacv3.Permission_DestinationIp:
		return "the address of the workload"
	}
	return ""
}

// caller describes the caller to whom a policy does not apply.
func (x *stream) caller() string {
	r := x.request
	who := r.Identity
	switch {
	case who == "" && r.Certificate:
		who = "a client with a certificate"
	case who == "":
		who = "a connection without a certificate"
	}
	if x.direct.on == "" {
		who += " from " + x.direct.ip.String()
	}
	if x.remote != x.direct && x.remote.on == "" {
		who += " for the client " + x.remote.ip.String()
	}
	switch sub, hasToken := x.payload["sub"]; {
	case hasToken:
		who += fmt.Sprintf(", with a token of %v/%v", x.payload["iss"], sub)
	case x.payload != nil:
		who += fmt.Sprintf(", with a token of %v", x.payload["iss"])
	}
	return who
}

func (x *stream) isPermitted(p *rbacv3.Permission) truth {
	r := x.request
	switch m := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return known(m.Any)
	case *rbacv3.Permission_AndRules:
		return every(m.AndRules.GetRules(), x.isPermitted)
	case *rbacv3.Permission_OrRules:
		return some(m.OrRules.GetRules(), x.isPermitted)
	case *rbacv3.Permission_NotRule:
		return x.isPermitted(m.NotRule).not()
	case *rbacv3.Permission_Header:
		return x.hasHeader(m.Header)
	case *rbacv3.Permission_UrlPath:
		return x.hasPath(m.UrlPath)
	case *rbacv3.Permission_DestinationPort:
		return x.toPort(m.DestinationPort, m.DestinationPort+1)
	case *rbacv3.Permission_DestinationPortRange:
		return x.toPort(uint32(max(m.DestinationPortRange.GetStart(), 0)), uint32(max(m.DestinationPortRange.GetEnd(), 0)))
	case *rbacv3.Permission_DestinationIp:
		return x.local.within(m.DestinationIp)
	case *rbacv3.Permission_RequestedServerName:
		return known(matchString(m.RequestedServerName, r.SNI))
	case *rbacv3.Permission_UriTemplate:
		path, _, _ := strings.Cut(r.Path, "?")
		t := &uritemplatev3.UriTemplateMatchConfig{}
		return known(m.UriTemplate.GetTypedConfig().UnmarshalTo(t) == nil && whole(templateRegex(t.GetPathTemplate()), path))
	case *rbacv3.Permission_Metadata:
		return x.saidMatches(m.Metadata) //nolint:staticcheck // the field that is sent
	}
	return unknown("a condition of an unknown type")
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

func (x *stream) isPrincipal(p *rbacv3.Principal) truth {
	r := x.request
	switch m := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return known(m.Any)
	case *rbacv3.Principal_AndIds:
		return every(m.AndIds.GetIds(), x.isPrincipal)
	case *rbacv3.Principal_OrIds:
		return some(m.OrIds.GetIds(), x.isPrincipal)
	case *rbacv3.Principal_NotId:
		return x.isPrincipal(m.NotId).not()
	case *rbacv3.Principal_Authenticated_:
		name := m.Authenticated.GetPrincipalName()
		if r.Identity == "" && r.Certificate && name != nil && !matchesAny(name) {
			return unknown("the names in the certificate of the client")
		}
		return known(r.Identity != "" && (name == nil || matchString(name, r.Identity)) || r.Identity == "" && r.Certificate)
	case *rbacv3.Principal_DirectRemoteIp:
		x.ByAddress = true
		return x.direct.within(m.DirectRemoteIp)
	case *rbacv3.Principal_RemoteIp:
		x.ByAddress = true
		return x.remote.within(m.RemoteIp)
	case *rbacv3.Principal_Header:
		return x.hasHeader(m.Header)
	case *rbacv3.Principal_UrlPath:
		return x.hasPath(m.UrlPath)
	case *rbacv3.Principal_Metadata: // claims of a token
		return x.saidMatches(m.Metadata) //nolint:staticcheck // the field that is sent
	}
	return unknown("a source of an unknown type")
}

// hasHeader reports whether a header of the request matches.
func (x *stream) hasHeader(h *routev3.HeaderMatcher) truth {
	t, _ := x.request.hasHeader(h)
	return t
}

// hasPath reports whether the path of the request matches, without its query.
func (x *stream) hasPath(m *matcherv3.PathMatcher) truth {
	path, _, _ := strings.Cut(x.request.Path, "?")
	return known(matchString(m.GetPath(), path))
}
