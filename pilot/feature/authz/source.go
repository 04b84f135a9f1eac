package authz

import (
	"regexp"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	securityv1beta1 "istio.io/api/security/v1beta1"
)

// source returns the attributes that a source requires.
func (t translation) source(s *securityv1beta1.Source) []attribute[*rbacv3.Principal] {
	return []attribute[*rbacv3.Principal]{
		{s.GetPrincipals(), s.GetNotPrincipals(), t.principals},
		{s.GetRequestPrincipals(), s.GetNotRequestPrincipals(), t.requestPrincipals},
		{s.GetServiceAccounts(), s.GetNotServiceAccounts(), each(principals{}, t.serviceAccount)},
		{s.GetNamespaces(), s.GetNotNamespaces(), namespaces},
		{s.GetTrustDomains(), s.GetNotTrustDomains(), t.trustDomains},
		{s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(), each(principals{}, remoteIP)},
		{s.GetIpBlocks(), s.GetNotIpBlocks(), each(principals{}, sourceIP)},
	}
}

// authenticated matches the authenticated SPIFFE ID of the peer. A peer over plaintext has none, and matches nothing.
func authenticated(m *matcherv3.StringMatcher) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: m}}}
}

// scheme is the prefix of every SPIFFE ID.
const scheme = "spiffe://"

// principals matches the peer's ID. An ID in one of the mesh's trust domains matches that ID in all of them. If
// matching peers are denied, each star of a value that begins with a star is a wildcard.
func (t translation) principals(values []string, keepsOut bool) (*rbacv3.Principal, error) {
	var list []*rbacv3.Principal
	for _, v := range t.inEveryDomain(values, keepsOut) {
		p := parsePattern(v)
		switch p.kind {
		case suffix:
			regex := p.regex(".*")
			if keepsOut {
				regex = glob(v, ".*")
			}
			list = append(list, authenticated(regexMatcher(scheme+regex)))
		case presence:
			list = append(list, authenticated(p.matcher(false)))
		default:
			p.text = scheme + p.text
			list = append(list, authenticated(p.matcher(false)))
		}
	}
	return principals{}.or(list...), nil
}

// namespaces matches the namespace in the peer's ID. The expression of a value that could match the "sa" after the
// namespace is anchored at the namespace's position.
func namespaces(values []string, keepsOut bool) (*rbacv3.Principal, error) {
	var list []*rbacv3.Principal
	for _, v := range values {
		regex := ".*/ns/" + parsePattern(v).regex(".*") + "/.*"
		if v == "sa" || v != "*" && strings.Contains(v, "*") {
			regex = scheme + "[^/]*/ns/" + segment(v, keepsOut) + "/.*"
		}
		list = append(list, authenticated(regexMatcher(regex)))
	}
	return principals{}.or(list...), nil
}

// trustDomains matches the trust domain in the peer's ID. A trust domain of the mesh matches all of them.
func (t translation) trustDomains(values []string, keepsOut bool) (*rbacv3.Principal, error) {
	var list []*rbacv3.Principal
	begins := func(with string) *rbacv3.Principal {
		return authenticated(&matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: with}})
	}
	for _, v := range t.withAliases(values) {
		switch {
		case v == "*":
			list = append(list, begins(scheme))
		case strings.Contains(v, "*"):
			list = append(list, authenticated(regexMatcher(scheme+segment(v, keepsOut)+"/.*")))
		default:
			list = append(list, begins(scheme+v+"/"))
		}
	}
	return principals{}.or(list...), nil
}

// segment returns the regular expression of a value that is one segment of an ID. If matching peers are denied, each
// star is a wildcard.
func segment(value string, keepsOut bool) string {
	const any = "[^/]*"
	if keepsOut {
		return glob(value, any)
	}
	return parsePattern(value).regex(any)
}

// serviceAccount matches the namespace and the service account in the peer's ID.
func (t translation) serviceAccount(value string) (*rbacv3.Principal, error) {
	ns, name, ok := strings.Cut(value, "/")
	if !ok {
		ns, name = t.own, value
	}
	return authenticated(regexMatcher(scheme + ".+/ns/" + regexp.QuoteMeta(ns) + "/(.+/|)sa/" + regexp.QuoteMeta(name) + "(/.+)?")), nil
}

// sourceIP matches the source address of the connection.
func sourceIP(value string) (*rbacv3.Principal, error) {
	r, err := cidr(value)
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_DirectRemoteIp{DirectRemoteIp: r}}, err
}

// remoteIP matches the address of the client, behind any trusted proxies.
func remoteIP(value string) (*rbacv3.Principal, error) {
	r, err := cidr(value)
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: r}}, err
}

// requestHeader matches a header of the request.
func (t translation) requestHeader(name string) func(value string) (*rbacv3.Principal, error) {
	return func(value string) (*rbacv3.Principal, error) {
		if !t.http {
			return nil, errNoHTTP
		}
		return &rbacv3.Principal{Identifier: &rbacv3.Principal_Header{Header: headerMatcher(name, value, false)}}, nil
	}
}
