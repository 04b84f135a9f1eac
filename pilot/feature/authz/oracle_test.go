package authz_test

import (
	"net/netip"
	"slices"
	"strings"

	securityv1 "istio.io/api/security/v1"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// request is an HTTP request, or a connection where http is false.
type request struct {
	http             bool
	domain, ns, name string // of the peer's SPIFFE ID; empty over plaintext
	source, remote   netip.Addr
	destination      netip.Addr
	port             int
	sni              string
	method           string
	host, path       string
	headers          map[string]string
	claims           map[string]any // of the request's token; nil without one
	says             map[string]any // what a filter says, by key
}

// filter is the one that says things of requests.
const filter = "envoy.filters.http.sayings"

// principal returns the peer's identity as policies name it. Over plaintext it is empty.
func (r *request) principal() string {
	if r.domain == "" {
		return ""
	}
	return r.domain + "/ns/" + r.ns + "/sa/" + r.name
}

// verdict is what becomes of a request.
type verdict struct {
	allowed bool
	asked   bool // an authorizer is asked first
}

// oracle decides as Istio's documentation of AuthorizationPolicy says. It has nothing in common with the translation.
type oracle struct {
	domains []string // the mesh's trust domain, and its aliases
}

// decide returns what becomes of a request to a workload with some policies.
func (o oracle) decide(policies []*kinds.Object, r *request) verdict {
	matches := func(action securityv1.AuthorizationPolicy_Action) (named, matched bool) {
		for _, p := range policies {
			spec := p.Spec.(*securityv1.AuthorizationPolicy)
			if spec.Action != action {
				continue
			}
			named = true
			for _, rule := range spec.Rules {
				matched = matched || o.rule(rule, p.Namespace, action != securityv1.AuthorizationPolicy_ALLOW, r)
			}
		}
		return named, matched
	}
	_, asked := matches(securityv1.AuthorizationPolicy_CUSTOM)
	_, denied := matches(securityv1.AuthorizationPolicy_DENY)
	some, allowed := matches(securityv1.AuthorizationPolicy_ALLOW)
	return verdict{allowed: !denied && (!some || allowed), asked: asked}
}

// ternary is whether a request has what a rule asks for. It is unknown where the traffic cannot have it.
type ternary int

const (
	no ternary = iota
	yes
	unknown
)

func is(b bool) ternary {
	if b {
		return yes
	}
	return no
}

// rule reports whether a rule matches: a source, an operation and all conditions do. What is unknown matches if the
// rule is to keep something out, and else the rule matches nothing.
func (o oracle) rule(rule *securityv1beta1.Rule, own string, restricts bool, r *request) bool {
	open := false // something is unknown
	all := func(list []ternary) bool {
		for _, t := range list {
			if t == unknown {
				open = true
			}
		}
		return !slices.Contains(list, no)
	}
	from, to := len(rule.From) == 0, len(rule.To) == 0
	for _, f := range rule.From {
		from = all(o.source(f.Source, own, restricts, r)) || from
	}
	for _, t := range rule.To {
		to = all(o.operation(t.Operation, restricts, r)) || to
	}
	var conditions []ternary
	for _, c := range rule.When {
		conditions = append(conditions, values(restricts, c.Values, c.NotValues, func(v string, keepsOut bool) ternary {
			return o.condition(c.Key, v, own, keepsOut, r)
		})...)
	}
	when := all(conditions)
	return from && to && when && (restricts || !open)
}

// values returns whether some value is there, and whether none is that must not be. has is told whether a request that
// has the value is kept out by it.
func values(restricts bool, positive, negative []string, has func(v string, keepsOut bool) ternary) []ternary {
	var list []ternary
	some := func(values []string, keepsOut bool) ternary {
		for _, v := range values {
			if t := has(v, keepsOut); t != no {
				return t
			}
		}
		return no
	}
	if len(positive) > 0 {
		list = append(list, some(positive, restricts))
	}
	if len(negative) > 0 {
		list = append(list, map[ternary]ternary{yes: no, no: yes, unknown: unknown}[some(negative, !restricts)])
	}
	return list
}

func (o oracle) source(s *securityv1beta1.Source, own string, restricts bool, r *request) []ternary {
	by := func(key string) func(string, bool) ternary {
		return func(v string, keepsOut bool) ternary { return o.condition(key, v, own, keepsOut, r) }
	}
	return slices.Concat(
		values(restricts, s.Principals, s.NotPrincipals, by("source.principal")),
		values(restricts, s.RequestPrincipals, s.NotRequestPrincipals, by("request.auth.principal")),
		values(restricts, s.Namespaces, s.NotNamespaces, by("source.namespace")),
		values(restricts, s.ServiceAccounts, s.NotServiceAccounts, by("source.serviceAccount")),
		values(restricts, s.TrustDomains, s.NotTrustDomains, by("source.trustDomain")),
		values(restricts, s.IpBlocks, s.NotIpBlocks, by("source.ip")),
		values(restricts, s.RemoteIpBlocks, s.NotRemoteIpBlocks, by("remote.ip")),
	)
}

func (o oracle) operation(s *securityv1beta1.Operation, restricts bool, r *request) []ternary {
	ofHTTP := func(has func(v string) bool) func(string, bool) ternary {
		return func(v string, _ bool) ternary {
			if !r.http {
				return unknown
			}
			return is(has(v))
		}
	}
	return slices.Concat(
		values(restricts, s.Hosts, s.NotHosts, ofHTTP(func(v string) bool { return text(strings.ToLower(v), strings.ToLower(r.host)) })),
		values(restricts, s.Methods, s.NotMethods, ofHTTP(func(v string) bool { return text(v, r.method) })),
		values(restricts, s.Paths, s.NotPaths, ofHTTP(func(v string) bool { return onPath(v, r.path) })),
		values(restricts, s.Ports, s.NotPorts, func(v string, _ bool) ternary { return o.condition("destination.port", v, "", false, r) }),
	)
}

// condition reports whether an attribute of a request has a value.
func (o oracle) condition(key, v, own string, keepsOut bool, r *request) ternary {
	if strings.HasPrefix(key, "request.") && !r.http {
		return unknown
	}
	name, inner, _ := strings.Cut(strings.TrimSuffix(key, "]"), "[")
	switch {
	case name == "request.headers":
		h, there := r.headers[strings.ToLower(inner)]
		return is(there && (v == "*" || text(v, h))) // an empty header is present
	case name == "request.auth.claims":
		return is(claim(v, r.claims, strings.Split(inner, "][")...))
	case strings.HasPrefix(name, "experimental."):
		if strings.HasPrefix(v, "[") && strings.HasSuffix(v, "]") {
			list, _ := r.says[inner].([]any)
			return is(element(v[1:len(v)-1], list))
		}
		s, _ := r.says[inner].(string)
		return is(text(v, s))
	}
	switch key {
	case "source.principal":
		return is(o.peer(v, keepsOut, r))
	case "source.namespace":
		return is(r.domain != "" && partOfID(v, keepsOut, r.ns))
	case "source.trustDomain":
		return is(r.domain != "" && (partOfID(v, keepsOut, r.domain) || slices.Contains(o.domains, v) && slices.Contains(o.domains, r.domain)))
	case "source.serviceAccount":
		if !strings.Contains(v, "/") {
			v = own + "/" + v
		}
		return is(r.domain != "" && v == r.ns+"/"+r.name)
	case "request.auth.principal":
		iss, _ := r.claims["iss"].(string)
		sub, _ := r.claims["sub"].(string)
		return is(iss != "" && sub != "" && (keepsOut && glob(v, iss+"/"+sub) || !keepsOut && token(v, iss, sub)))
	case "request.auth.audiences":
		return is(claim(v, r.claims, "aud"))
	case "request.auth.presenter":
		return is(claim(v, r.claims, "azp"))
	case "source.ip":
		return is(inRange(v, r.source))
	case "remote.ip":
		return is(inRange(v, r.remote))
	case "destination.ip":
		return is(inRange(v, r.destination))
	case "destination.port":
		return is(v == text10(r.port))
	case "connection.sni":
		return is(text(v, r.sni))
	}
	panic("unknown key " + key)
}

func text10(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return text10(n/10) + string(rune('0'+n%10))
}

// peer reports whether a value is about the peer. One that names a trust domain of the mesh is about the same name in
// all of them. A whole ID of cluster.local is, too, whatever the trust domains are. In what keeps out, it is about a
// peer that has this very ID as well, and each star of a value that begins with a star is a wildcard.
func (o oracle) peer(v string, keepsOut bool, r *request) bool {
	if r.domain == "" {
		return false
	}
	parts := strings.Split(v, "/")
	named, rest, _ := strings.Cut(v, "/")
	own := slices.Contains(o.domains, r.domain) && strings.HasPrefix(rest, "ns/")
	if len(parts) == 5 && named == "cluster.local" && !slices.Contains(o.domains, named) {
		return own && text(rest, "ns/"+r.ns+"/sa/"+r.name) || keepsOut && text(v, r.principal())
	}
	if text(v, r.principal()) || keepsOut && strings.HasPrefix(v, "*") && glob(v, r.principal()) {
		return true
	}
	if !own || strings.HasPrefix(named, "*") && text(named, r.domain) {
		return false
	}
	names := func(d string) bool { return text(named, d) && (len(parts) == 5 || !strings.HasSuffix(named, "*")) }
	return slices.ContainsFunc(o.domains, names) && text(rest, "ns/"+r.ns+"/sa/"+r.name)
}

// partOfID reports whether a value is about a namespace or a trust domain. Each star of a value that keeps out is a
// wildcard.
func partOfID(v string, keepsOut bool, s string) bool {
	return s != "" && (text(v, s) || keepsOut && glob(v, s))
}

// glob reports whether a value is a text, where each star stands for any text.
func glob(v, s string) bool {
	before, after, star := strings.Cut(v, "*")
	if !star {
		return v == s
	}
	if !strings.HasPrefix(s, before) {
		return false
	}
	for s = s[len(before):]; ; s = s[1:] {
		if glob(after, s) {
			return true
		}
		if s == "" {
			return false
		}
	}
}

// text reports whether a value is a text: exactly, by prefix, by suffix, or since it is not empty.
func text(v, s string) bool {
	switch {
	case v == "*":
		return s != ""
	case strings.HasPrefix(v, "*"):
		return strings.HasSuffix(s, v[1:])
	case strings.HasSuffix(v, "*"):
		return strings.HasPrefix(s, v[:len(v)-1])
	}
	return s == v
}

// token reports whether a value is about an issuer and a subject, which the last slash of the value separates. One star
// at the beginning or at the end is a wildcard. A value without a slash is the end of a subject, or the beginning of an
// issuer.
func token(v, iss, sub string) bool {
	i := strings.LastIndexByte(v, '/')
	switch {
	case v == "*":
		return true
	case strings.HasPrefix(v, "*") && i < 0:
		return strings.HasSuffix(sub, v[1:])
	case strings.HasPrefix(v, "*"):
		return strings.HasSuffix(iss, v[1:i]) && sub == v[i+1:]
	case strings.HasSuffix(v, "*") && i < 0:
		return strings.HasPrefix(iss, v[:len(v)-1])
	case strings.HasSuffix(v, "*"):
		return iss == v[:i] && strings.HasPrefix(sub, v[i+1:len(v)-1])
	}
	return i >= 0 && iss == v[:i] && sub == v[i+1:]
}

// onPath reports whether a value is about a path, of which the query does not count.
func onPath(v, path string) bool {
	path, _, _ = strings.Cut(path, "?")
	if !strings.Contains(v, "{") {
		return text(v, path)
	}
	return segments(strings.Split(v, "/"), strings.Split(path, "/"))
}

// segments matches a template: {*} is a part of a path between slashes, and {**} any number of them.
func segments(template, path []string) bool {
	switch {
	case len(template) == 0:
		return len(path) == 0
	case template[0] == "{**}":
		for n := 1; n <= len(path); n++ {
			if segments(template[1:], path[n:]) {
				return true
			}
		}
		return false
	case len(path) == 0:
		return false
	}
	return (template[0] == path[0] || template[0] == "{*}" && path[0] != "") && segments(template[1:], path[1:])
}

// claim reports whether a claim is a value, or a list with it.
func claim(v string, claims map[string]any, keys ...string) bool {
	var at any = claims
	for _, k := range keys {
		m, _ := at.(map[string]any)
		at = m[k]
	}
	if list, ok := at.([]any); ok {
		return element(v, list)
	}
	s, ok := at.(string)
	return ok && text(v, s)
}

// element reports whether a value is in a list.
func element(v string, list []any) bool {
	return slices.ContainsFunc(list, func(e any) bool {
		s, ok := e.(string)
		return ok && text(v, s)
	})
}

// inRange reports whether an address is in a range, or is the address.
func inRange(v string, a netip.Addr) bool {
	if p, err := netip.ParsePrefix(v); err == nil {
		return p.Contains(a)
	}
	b, err := netip.ParseAddr(v)
	return err == nil && a == b
}
