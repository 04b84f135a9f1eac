package authz_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	securityv1 "istio.io/api/security/v1"
	securityv1beta1 "istio.io/api/security/v1beta1"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// What requests have, and policies ask for. The words are few and alike, so that rules often nearly match: a dot must
// not match any character, a part of a name not the whole, and one part of an identity not another.
var (
	domains    = []string{"cluster.local", "clusterxlocal", "old.example", "x.cluster.local", "a", "td1", "td2"}
	namespaces = []string{"a", "b", "a.b", "axb", "a-b", "ns", "sa"}
	accounts   = []string{"a.b", "axb", "b", "web", "web.b", "ns", "sa"}
	methods    = []string{"GET", "PUT", "POST"}
	hosts      = []string{"a.example", "A.Example", "axexample", "b.a.example", "a.example:80", "example"}
	paths      = []string{
		"/", "/a", "/A", "/a/", "/a/b", "/a//b", "//a", "/a%2Fb", "/%2Fa", "/a;b", "/a/b.css", "/a/b/c", "/b/a", "/a/x/b", "/a/*/b",
		"/a/x/y/b", "/a.css", "/axcss", "/ab",
	}
	queries   = []string{"", "", "", "?", "?/a", "?b.css", "?a=b"}
	templates = []string{"/{*}", "/{**}", "/a/{*}", "/a/{**}", "/a/{*}/b", "/{*}/b", "/a/{**}/b", "/{*}/{**}"}
	texts     = []string{"a", "A", "b", "a.b", "axb", "ab", "a,b", "a/b"}
	names     = []string{"a.example", "outbound_.80_._.web.a", "axexample"}
	issuers   = []string{"issuer", "https://issuer", "https://issuer/a", "issuer/a", "https://issuerx"}
	subjects  = []string{"a", "b", "a/b", "a.b", "axb"}
	addresses = []string{"127.0.0.1", "127.0.0.2", "10.0.0.1", "10.0.1.1", "192.0.2.1", "2001:db8::1", "::1"}
	ranges    = []string{"127.0.0.2", "127.0.0.0/31", "10.0.0.1", "10.0.0.0/24", "10.0.0.77/16", "0.0.0.0/0", "192.0.2.1/32",
		"2001:db8::/32", "::/0", "::1"}
	ports = []string{"80", "8080"}
)

// identities returns the names of peers, in the form of values.
func identities() []string {
	var list []string
	for _, d := range domains {
		for _, n := range namespaces[:3] {
			for _, a := range accounts[:3] {
				list = append(list, d+"/ns/"+n+"/sa/"+a)
			}
		}
	}
	return list
}

func subjectsOfIssuers() []string {
	var list []string
	for _, i := range issuers {
		for _, s := range subjects {
			list = append(list, i+"/"+s)
		}
	}
	return list
}

// some draws values: words whole, cut off, with one star or two anywhere, and the star alone.
func some(t *rapid.T, label string, of []string, whole bool) []string {
	list := make([]string, rapid.IntRange(1, 3).Draw(t, "how many "+label))
	for i := range list {
		v := rapid.SampledFrom(of).Draw(t, label)
		cut := rapid.IntRange(0, len(v)).Draw(t, "cut")
		switch form := rapid.IntRange(0, 10).Draw(t, "form"); {
		case whole || form < 4 || strings.Contains(v, "{"):
		case form < 5:
			v = "*"
		case form < 6:
			v = "*" + v[cut:]
		case form < 8:
			v = v[:cut] + "*"
		case form < 9:
			v = v[:cut] + "*" + v[cut:]
		case form < 10:
			v = "*" + v[cut:] + "*"
		default:
			v = v[:max(cut, 1)]
		}
		list[i] = v
	}
	return list
}

// put draws values of a field, those that must be there or those that must not be.
func put(t *rapid.T, label string, of []string, whole bool, positive, negative *[]string) {
	if rapid.IntRange(0, 3).Draw(t, "not "+label) == 0 {
		*negative = some(t, label, of, whole)
	} else {
		*positive = some(t, label, of, whole)
	}
}

func drawSource(t *rapid.T) *securityv1beta1.Source {
	s := &securityv1beta1.Source{}
	for range rapid.IntRange(1, 2).Draw(t, "source fields") {
		switch rapid.IntRange(0, 6).Draw(t, "source field") {
		case 0:
			put(t, "principals", identities(), false, &s.Principals, &s.NotPrincipals)
		case 1:
			put(t, "requestPrincipals", subjectsOfIssuers(), false, &s.RequestPrincipals, &s.NotRequestPrincipals)
		case 2:
			put(t, "namespaces", namespaces, false, &s.Namespaces, &s.NotNamespaces)
		case 3:
			put(t, "serviceAccounts", []string{"a.b", "axb", "a/a.b", "a.b/b", "sa/sa", "ns/web"}, true, &s.ServiceAccounts, &s.NotServiceAccounts)
		case 4:
			put(t, "trustDomains", domains, false, &s.TrustDomains, &s.NotTrustDomains)
		case 5:
			put(t, "ipBlocks", ranges, true, &s.IpBlocks, &s.NotIpBlocks)
		case 6:
			put(t, "remoteIpBlocks", ranges, true, &s.RemoteIpBlocks, &s.NotRemoteIpBlocks)
		}
	}
	return s
}

func drawOperation(t *rapid.T) *securityv1beta1.Operation {
	o := &securityv1beta1.Operation{}
	for range rapid.IntRange(1, 2).Draw(t, "operation fields") {
		switch rapid.IntRange(0, 4).Draw(t, "operation field") {
		case 0:
			put(t, "hosts", hosts, false, &o.Hosts, &o.NotHosts)
		case 1:
			put(t, "methods", methods, false, &o.Methods, &o.NotMethods)
		case 2, 3:
			put(t, "paths", slices.Concat(paths, templates), false, &o.Paths, &o.NotPaths)
		case 4:
			put(t, "ports", ports, true, &o.Ports, &o.NotPorts)
		}
	}
	return o
}

// keys are those of conditions, with the words of their values, and whether values are whole.
var keys = []struct {
	name  string
	words []string
	whole bool
}{
	{"request.headers[X-A]", texts, false},
	{"source.ip", ranges, true},
	{"remote.ip", ranges, true},
	{"source.namespace", namespaces, false},
	{"source.principal", identities(), false},
	{"source.serviceAccount", []string{"a.b", "a/web", "ns/sa"}, true},
	{"source.trustDomain", domains, false},
	{"request.auth.principal", subjectsOfIssuers(), false},
	{"request.auth.audiences", texts, false},
	{"request.auth.presenter", texts, false},
	{"request.auth.claims[group]", texts, false},
	{"request.auth.claims[nested][key.a]", texts, false},
	{"destination.ip", ranges, true},
	{"destination.port", ports, true},
	{"connection.sni", names, false},
	{"experimental." + filter + "[saying]", texts, false},
	{"experimental." + filter + "[saying]", []string{"[a]", "[b]", "[a.b]", "[a*]", "[*b]"}, true},
}

func drawPolicies(t *rapid.T) []*kinds.Object {
	var list []*kinds.Object
	for i := range rapid.IntRange(1, 3).Draw(t, "policies") {
		p := &securityv1.AuthorizationPolicy{Action: rapid.SampledFrom([]securityv1.AuthorizationPolicy_Action{
			securityv1.AuthorizationPolicy_ALLOW, securityv1.AuthorizationPolicy_ALLOW, securityv1.AuthorizationPolicy_DENY,
			securityv1.AuthorizationPolicy_AUDIT, securityv1.AuthorizationPolicy_CUSTOM,
		}).Draw(t, "action")}
		if p.Action == securityv1.AuthorizationPolicy_CUSTOM {
			p.ActionDetail = &securityv1.AuthorizationPolicy_Provider{
				Provider: &securityv1.AuthorizationPolicy_ExtensionProvider{Name: provider.Name},
			}
		}
		for range rapid.IntRange(0, 2).Draw(t, "rules") {
			r := &securityv1beta1.Rule{}
			for range rapid.IntRange(0, 2).Draw(t, "sources") {
				r.From = append(r.From, &securityv1beta1.Rule_From{Source: drawSource(t)})
			}
			for range rapid.IntRange(0, 2).Draw(t, "operations") {
				r.To = append(r.To, &securityv1beta1.Rule_To{Operation: drawOperation(t)})
			}
			for range rapid.IntRange(0, 1).Draw(t, "conditions") {
				k := rapid.SampledFrom(keys).Draw(t, "key")
				c := &securityv1beta1.Condition{Key: k.name}
				put(t, k.name, k.words, k.whole, &c.Values, &c.NotValues)
				r.When = append(r.When, c)
			}
			p.Rules = append(p.Rules, r)
		}
		namespace := rapid.SampledFrom([]string{"a", "a.b"}).Draw(t, "namespace of the policy")
		list = append(list, &kinds.Object{Key: kinds.Key{Kind: kinds.AuthorizationPolicy, Namespace: namespace, Name: fmt.Sprint("p", i)},
			Spec: p})
	}
	return list
}

// drawUgly draws a policy whose values are made of what means something in patterns, expressions, templates, headers
// and paths.
func drawUgly(t *rapid.T) *kinds.Object {
	part := rapid.SampledFrom([]string{
		"a", "a", "b", "*", "**", "{*}", "{**}", "/", "/", "/", "{", "}", "[", "]", "(", ")", ".", "..", "?", "#", "%", "%2F", "%zz", "\\", "^",
		"$", "|", "+", "\n", "\r", "\t", " ", "\x00", "\x7f", "ä", ":", "://", ";", "\"", "'",
	})
	one := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(part, 1, 5).Draw(t, "parts"), "") })
	list := func(label string) []string { return rapid.SliceOfN(one, 1, 2).Draw(t, label) }
	r := &securityv1beta1.Rule{}
	switch rapid.IntRange(0, 9).Draw(t, "where") {
	case 0:
		r.From = []*securityv1beta1.Rule_From{{Source: &securityv1beta1.Source{Principals: list("principals"),
			NotNamespaces: list("namespaces")}}}
	case 1:
		r.From = []*securityv1beta1.Rule_From{{Source: &securityv1beta1.Source{RequestPrincipals: list("requestPrincipals"),
			TrustDomains: list("trustDomains"), ServiceAccounts: list("serviceAccounts")}}}
	case 2:
		r.To = []*securityv1beta1.Rule_To{{Operation: &securityv1beta1.Operation{Hosts: list("hosts"), NotMethods: list("methods")}}}
	case 3, 4, 5, 6:
		r.To = []*securityv1beta1.Rule_To{{Operation: &securityv1beta1.Operation{Paths: list("paths")}}}
		if rapid.Bool().Draw(t, "template") {
			segment := rapid.OneOf(rapid.SampledFrom([]string{"{*}", "{*}", "{**}", "a", ""}), part)
			r.To[0].Operation.Paths = []string{"/" + strings.Join(rapid.SliceOfN(segment, 1, 4).Draw(t, "segments"), "/")}
		}
	default:
		key := rapid.SampledFrom([]string{"request.headers[%]", "request.auth.claims[%]", "request.auth.claims[%][%]",
			"experimental.envoy.filters.%[%]", "connection.sni", "request.auth.presenter", "source.namespace"}).Draw(t, "key")
		for strings.Contains(key, "%]") || strings.Contains(key, ".%") {
			key = strings.Replace(key, "%", strings.ReplaceAll(one.Draw(t, "name"), "%", "x"), 1)
		}
		r.When = []*securityv1beta1.Condition{{Key: key, Values: list("values")}}
	}
	action := rapid.SampledFrom([]securityv1.AuthorizationPolicy_Action{securityv1.AuthorizationPolicy_ALLOW,
		securityv1.AuthorizationPolicy_DENY}).Draw(t, "action")
	return &kinds.Object{
		Key:  kinds.Key{Kind: kinds.AuthorizationPolicy, Namespace: "a", Name: "ugly"},
		Spec: &securityv1.AuthorizationPolicy{Action: action, Rules: []*securityv1beta1.Rule{r}},
	}
}

// show returns policies as text.
func show(policies []*kinds.Object) string {
	var b strings.Builder
	for _, p := range policies {
		fmt.Fprintf(&b, "%s/%s: %s\n", p.Namespace, p.Name, protojson.Format(p.Spec.(*securityv1.AuthorizationPolicy)))
	}
	return b.String()
}

// dice throws requests.
type dice struct{ *rand.Rand }

func (d dice) of(list []string) string { return list[d.IntN(len(list))] }

// rarely is true once in n times.
func (d dice) rarely(n int) bool { return d.IntN(n) == 0 }

func (d dice) address() netip.Addr { return netip.MustParseAddr(d.of(addresses)) }

// saying returns a text, a list of texts, or something else.
func (d dice) saying() any {
	switch d.IntN(4) {
	case 0:
		return []any{d.of(texts), d.of(texts)}
	case 1:
		return 7.0
	}
	return d.of(texts)
}

func (d dice) request() *request {
	r := &request{
		http: !d.rarely(3), source: d.address(), remote: d.address(), destination: d.address(), port: 80,
		sni: d.of(append(names, "")), method: d.of(methods), host: d.of(hosts), path: d.of(paths) + d.of(queries),
	}
	if d.rarely(2) {
		r.port = 8080
	}
	if !d.rarely(4) {
		r.domain, r.ns, r.name = d.of(domains), d.of(namespaces), d.of(accounts)
	}
	if d.rarely(2) {
		r.says = map[string]any{"saying": d.saying()}
	}
	if !r.http {
		return r
	}
	if d.rarely(2) {
		r.headers = map[string]string{"x-a": d.of(append(texts, ""))}
	}
	if !d.rarely(3) {
		r.claims = map[string]any{"iss": d.of(append(issuers, "")), "sub": d.of(subjects), "aud": d.saying(), "group": d.saying(),
			"nested": map[string]any{"key.a": d.saying()}}
		for _, k := range []string{"sub", "aud", "group", "nested"} {
			if d.rarely(4) {
				delete(r.claims, k)
			}
		}
		if d.rarely(2) {
			r.claims["azp"] = d.of(texts)
		}
	}
	return r
}
