package trace

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// hostFor returns the virtual host of an authority: by an exact match, by the longest suffix, by the longest prefix, or
// the one for all.
func hostFor(c *routev3.RouteConfiguration, authority string) (*routev3.VirtualHost, string) {
	authority = strings.ToLower(authority)
	if c.GetIgnorePortInHostMatching() {
		if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
			authority = authority[:i]
		}
	}
	var found *routev3.VirtualHost
	best, reason := 0, ""
	for _, h := range c.GetVirtualHosts() {
		for _, d := range h.GetDomains() {
			domain, rank, why := strings.ToLower(d), 0, ""
			switch {
			case domain == authority:
				rank, why = 1<<30, "it is for "+d
			case domain == "*":
				rank, why = 1, "it is for all hosts, and no other is for "+authority
			case strings.HasPrefix(domain, "*") && strings.HasSuffix(authority, domain[1:]) && len(authority) > len(domain)-1:
				rank, why = 1<<20+len(domain), "it is for "+d
			case strings.HasSuffix(domain, "*") && strings.HasPrefix(authority, domain[:len(domain)-1]) && len(authority) > len(domain)-1:
				rank, why = 1<<10+len(domain), "it is for "+d
			}
			if rank > best {
				found, best, reason = h, rank, why
			}
		}
	}
	return found, reason
}

// routeFor returns the first route of a virtual host that matches, and why each other one does not apply.
func (x *stream) routeFor(h *routev3.VirtualHost) (won *routev3.Route, s Step, depends []string) {
	s = Step{What: "route", Name: "none"}
	for i, route := range h.GetRoutes() {
		origin := Origin{Path: configOf(route.GetMetadata()), Routes: x.routes.GetName(), Host: h.GetName(), Place: i, Route: route}
		name := nameOf(route, i)
		reason := "it comes after the chosen one"
		if won == nil {
			var on []string
			reason, on = x.mismatch(route.GetMatch())
			if on != nil {
				reason = "whether it matches depends on " + truth{on: on}.text()
				depends = append(depends, name+": "+reason)
			}
			if reason == "" {
				won = route
				s.Name, s.Origin, s.Reason, s.Details = name, origin, "it is the first that matches: "+matchText(route.GetMatch()), actions(route)
				continue
			}
		}
		s.Lost = append(s.Lost, Lost{Name: name, Reason: reason, Origin: origin})
	}
	return won, s, depends
}

func nameOf(r *routev3.Route, i int) string {
	if r.GetName() != "" {
		return r.GetName()
	}
	return "routes[" + strconv.Itoa(i) + "]"
}

func matchText(m *routev3.RouteMatch) string {
	var text string
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		text = "path " + p.Prefix + "*"
	case *routev3.RouteMatch_PathSeparatedPrefix:
		text = "path " + p.PathSeparatedPrefix + " and below"
	case *routev3.RouteMatch_Path:
		text = "path " + p.Path
	case *routev3.RouteMatch_SafeRegex:
		text = "path ~" + p.SafeRegex.GetRegex()
	}
	for _, h := range m.GetHeaders() {
		text += ", header " + h.GetName()
	}
	for _, q := range m.GetQueryParameters() {
		text += ", query " + q.GetName()
	}
	return text
}

// mismatch returns why a route does not match, or "" if it does. If that is not known, it returns what it depends on.
func (x *stream) mismatch(m *routev3.RouteMatch) (why string, on []string) {
	r := x.request
	path, query, _ := strings.Cut(r.Path, "?")
	sensitive := m.GetCaseSensitive() == nil || m.GetCaseSensitive().GetValue()
	fold := func(s string) string {
		if sensitive {
			return s
		}
		return strings.ToLower(s)
	}
	if r.Method == "CONNECT" && m.GetConnectMatcher() == nil {
		return "CONNECT has no path, and the route is for paths: a listener for TCP passes CONNECT on", nil
	}
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		if !strings.HasPrefix(fold(path), fold(p.Prefix)) {
			return fmt.Sprintf("path %s does not begin with %s", path, p.Prefix), nil
		}
	case *routev3.RouteMatch_PathSeparatedPrefix:
		if rest, ok := strings.CutPrefix(fold(path), fold(p.PathSeparatedPrefix)); !ok || rest != "" && rest[0] != '/' {
			return fmt.Sprintf("path %s is not %s, nor below it", path, p.PathSeparatedPrefix), nil
		}
	case *routev3.RouteMatch_Path:
		if fold(path) != fold(p.Path) {
			return fmt.Sprintf("path %s is not %s", path, p.Path), nil
		}
	case *routev3.RouteMatch_SafeRegex:
		if !whole(p.SafeRegex.GetRegex(), path) {
			return fmt.Sprintf("path %s does not match ~%s", path, p.SafeRegex.GetRegex()), nil
		}
	case *routev3.RouteMatch_ConnectMatcher_:
		if r.Method != "CONNECT" {
			return "it is for the method CONNECT", nil
		}
	default:
		on = append(on, "a match of paths of a type that is not evaluated")
	}
	for _, h := range m.GetHeaders() {
		if t, why := r.hasHeader(h); t.on != nil {
			on = append(on, t.on...)
		} else if !t.holds {
			return why, nil
		}
	}
	if len(m.GetQueryParameters()) > 0 {
		values, _ := url.ParseQuery(query)
		for _, q := range m.GetQueryParameters() {
			list, there := values[q.GetName()]
			switch {
			case q.GetStringMatch() != nil && (!there || !matchString(q.GetStringMatch(), list[0])):
				return fmt.Sprintf("query parameter %s is %s, and not %s", q.GetName(), shown(strings.Join(list, ","), there),
					stringText(q.GetStringMatch())), nil
			case q.GetStringMatch() == nil && there != q.GetPresentMatch():
				return "query parameter " + q.GetName() + " is missing", nil
			}
		}
	}
	if m.GetGrpc() != nil && !strings.HasPrefix(r.Headers["content-type"], "application/grpc") {
		return "it is for gRPC", nil
	}
	if len(m.GetDynamicMetadata()) > 0 {
		for _, d := range m.GetDynamicMetadata() {
			switch t := x.saidMatches(d); {
			case t.on != nil:
				on = append(on, t.on...)
			case t.holds:
			case x.payload == nil:
				return "it requires claims of a token, and the request has no valid token", nil
			default:
				return "the claim " + claimPath(d) + " of the token does not match", nil
			}
		}
	}
	return "", on
}

func shown(value string, there bool) string {
	if !there {
		return "missing"
	}
	return strconv.Quote(value)
}

// header returns a header of the request, including pseudo-headers.
func (r Request) header(name string) (string, bool) {
	switch name = strings.ToLower(name); name {
	case ":method":
		return r.Method, true
	case ":path":
		return r.Path, true
	case ":authority", "host":
		return r.Authority, true
	case ":scheme":
		if proto := strings.ToLower(r.Headers["x-forwarded-proto"]); proto == "http" || proto == "https" {
			return proto, true
		}
		return r.scheme(), true
	}
	v, ok := r.Headers[name]
	return v, ok
}

// hasHeader reports whether a header of the request matches, and why it does not.
func (r Request) hasHeader(h *routev3.HeaderMatcher) (truth, string) {
	if on := r.unclearBy(strings.ToLower(h.GetName())); on != "" {
		return unknown(on), ""
	}
	value, there := r.header(h.GetName())
	if !there && h.GetTreatMissingHeaderAsEmpty() {
		there = true
	}
	var matches bool
	wanted := "present"
	switch s := h.GetHeaderMatchSpecifier().(type) {
	case nil:
		matches = there
	case *routev3.HeaderMatcher_PresentMatch:
		matches = there == s.PresentMatch
		if !s.PresentMatch {
			wanted = "missing"
		}
		return headerTruth(h, matches, value, there, wanted)
	case *routev3.HeaderMatcher_StringMatch:
		matches, wanted = there && matchString(s.StringMatch, value), stringText(s.StringMatch)
	case *routev3.HeaderMatcher_RangeMatch:
		n, err := strconv.ParseInt(value, 10, 64)
		matches, wanted = there && err == nil && n >= s.RangeMatch.GetStart() &&
			n < s.RangeMatch.GetEnd(), fmt.Sprintf("from %d to below %d", s.RangeMatch.GetStart(), s.RangeMatch.GetEnd())
	default:
		return unknown("how header " + h.GetName() + " is matched, which is not evaluated"), ""
	}
	if !there { // in Envoy the match of a missing header fails, inverted or not
		return known(false), fmt.Sprintf("header %s is missing, and must be %s%s", h.GetName(), not(h.GetInvertMatch()), wanted)
	}
	return headerTruth(h, matches, value, there, wanted)
}

func headerTruth(h *routev3.HeaderMatcher, matches bool, value string, there bool, wanted string) (truth, string) {
	if matches != h.GetInvertMatch() {
		return known(true), ""
	}
	return known(false), fmt.Sprintf("header %s is %s, and must be %s%s", h.GetName(), shown(value, there), not(h.GetInvertMatch()), wanted)
}

func not(invert bool) string {
	if invert {
		return "other than "
	}
	return ""
}

func matchString(m *matcherv3.StringMatcher, value string) bool {
	fold := func(s string) string {
		if m.GetIgnoreCase() {
			return strings.ToLower(s)
		}
		return s
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return fold(value) == fold(p.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(fold(value), fold(p.Prefix))
	case *matcherv3.StringMatcher_Suffix:
		return strings.HasSuffix(fold(value), fold(p.Suffix))
	case *matcherv3.StringMatcher_Contains:
		return strings.Contains(fold(value), fold(p.Contains))
	case *matcherv3.StringMatcher_SafeRegex:
		return whole(p.SafeRegex.GetRegex(), value)
	}
	return false
}

// matchesAny reports whether a matcher takes every text that is not empty.
func matchesAny(m *matcherv3.StringMatcher) bool {
	switch m.GetSafeRegex().GetRegex() {
	case ".*", ".+":
		return true
	}
	_, isPrefix := m.GetMatchPattern().(*matcherv3.StringMatcher_Prefix)
	return isPrefix && m.GetPrefix() == ""
}

func stringText(m *matcherv3.StringMatcher) string {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return strconv.Quote(p.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return strconv.Quote(p.Prefix) + " and what begins with it"
	case *matcherv3.StringMatcher_Suffix:
		return "what ends with " + strconv.Quote(p.Suffix)
	case *matcherv3.StringMatcher_Contains:
		return "what contains " + strconv.Quote(p.Contains)
	case *matcherv3.StringMatcher_SafeRegex:
		return "what matches ~" + p.SafeRegex.GetRegex()
	}
	return "what is not known here"
}

// whole reports whether a regular expression matches a whole text. Envoy's expressions are RE2's, as Go's are.
func whole(regex, text string) bool {
	x, err := regexp.Compile(`\A(?:` + regex + `)\z`) //nolint:forbidigo // it is in a proxy's configuration
	return err == nil && x.MatchString(text)
}
