package matches

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func stringMatch(t *testing.T, text string) *networkingv1alpha3.StringMatch {
	t.Helper()
	kind, value, _ := strings.Cut(text, " ")
	switch kind {
	case "exact":
		return &networkingv1alpha3.StringMatch{MatchType: &networkingv1alpha3.StringMatch_Exact{Exact: value}}
	case "prefix":
		return &networkingv1alpha3.StringMatch{MatchType: &networkingv1alpha3.StringMatch_Prefix{Prefix: value}}
	case "regex":
		return &networkingv1alpha3.StringMatch{MatchType: &networkingv1alpha3.StringMatch_Regex{Regex: value}}
	}
	return &networkingv1alpha3.StringMatch{}
}

func TestTexts(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"present", "exact a", true}, {"exact a", "present", false}, {"regex .*", "present", true}, {"regex .+", "present", false},
		{"regex *", "regex a|b", true}, {"prefix ", "exact a", true},
		{"exact a", "exact a", true}, {"exact a", "exact b", false}, {"exact a", "prefix a", false}, {"exact a", "regex a", true},
		{"prefix a", "exact ab", true}, {"prefix a", "prefix ab", true}, {"prefix ab", "prefix a", false},
		{"prefix a", "regex ab[0-9]", true},
		{"prefix a", "regex ^ab[0-9]$", true}, {"prefix a", "regex ba|ab", false}, {"prefix a", "regex (?i)ab[0-9]", false},
		{"regex ^/.+$", "prefix /api", true}, {"regex ^/.+$", "prefix /", false}, {"regex ^/.*$", "prefix /", true},
		{"regex ^(/.*)$", "exact /", true},
		{"regex /v[12]/.*", "prefix /v1/", true}, {"regex /v[12]/.*", "prefix /v1", false}, {"regex /v[12]/.*", "regex /v1/[a-z]+", true},
		{"regex /v[12]/.*", "regex /v[12]/.*", true}, {"regex /v[12]/.*", "regex /v[1]/.*", true},
		{"regex /v[12]/.*", "regex /v[1-2]/x", false},
		{"regex a|b.*", "prefix b", false}, {"regex a|b.*", "exact bc", true}, {`regex a\b.*`, "prefix a", false},
		{"regex a.*|b", "exact ac", true},
		{"regex [a-c]", "exact b", true}, {"regex [a-c]", "exact bb", false}, {"regex (", "regex (", true}, {"regex (", "exact (", false},
		{"regex jason", "exact jason", true}, {"regex ", "exact ", true}, {"regex ", "exact a", false},
		{"regex .*jason.*", "exact jason", true},
		{"regex .*", "regex .*jason.*", true}, {`regex ^(.*?;)?(email=[^;]*@some.com)(;.*)?$`, "exact email=a@some.com", true},
	} {
		if got := TextOf(stringMatch(t, c.a)).Contains(TextOf(stringMatch(t, c.b))); got != c.want {
			t.Errorf("%s contains %s: %t", c.a, c.b, got)
		}
	}
}

func match(t *testing.T, text string) *networkingv1alpha3.HTTPMatchRequest {
	t.Helper()
	m := &networkingv1alpha3.HTTPMatchRequest{}
	must.Succeed(t, protojson.Unmarshal([]byte(text), m))
	return m
}

func TestRequests(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{}`, `{"uri":{"exact":"/a"}}`, true}, {`{"uri":{"exact":"/a"}}`, `{}`, false}, {`{"uri":{"prefix":"/"}}`, `{}`, true},
		{`{"uri":{"regex":".*"}}`, `{"method":{"exact":"GET"}}`, true}, {`{"uri":{"regex":"^/.+$"}}`, `{}`, false},
		{`{"uri":{"prefix":"/a"},"method":{"exact":"GET"}}`, `{"uri":{"prefix":"/a"}}`, false},
		{`{"uri":{"prefix":"/a"}}`, `{"uri":{"prefix":"/a/b"},"method":{"exact":"GET"}}`, true},
		{`{"method":{"exact":"GET"}}`, `{"headers":{":method":{"exact":"GET"}}}`, true},
		{`{"headers":{"X-A":{}}}`, `{"headers":{"x-a":{"regex":"a|b"}}}`, true},
		{`{"headers":{"x-a":{}}}`, `{"queryParams":{"x-a":{}}}`, false},
		{`{"headers":{"@request.auth.claims.A":{}}}`, `{"headers":{"@request.auth.claims.a":{}}}`, false},
		{`{"queryParams":{"q":{"prefix":"a"}}}`, `{"queryParams":{"q":{"exact":"ab"}}}`, true},
		{`{"queryParams":{"q":{"prefix":"a"}}}`, `{"queryParams":{"Q":{"exact":"ab"}}}`, false},
		{`{"withoutHeaders":{"x":{"exact":"ab"}}}`, `{"withoutHeaders":{"x":{"prefix":"a"}}}`, true},
		{`{"withoutHeaders":{"x":{"prefix":"a"}}}`, `{"withoutHeaders":{"x":{"exact":"ab"}}}`, false},
		{`{"withoutHeaders":{"x":{"exact":"a"}}}`, `{"withoutHeaders":{"x":{}}}`, true},
		{`{"withoutHeaders":{"x":{"regex":".*"}}}`, `{"withoutHeaders":{"x":{}}}`, false}, // without the header there is the empty value
		{`{"withoutHeaders":{"x":{}}}`, `{"withoutHeaders":{"x":{"regex":".*"}}}`, false},
		{`{"withoutHeaders":{"x":{}}}`, `{"withoutHeaders":{"x":{}}}`, true},
		{`{"ignoreUriCase":true,"uri":{"prefix":"/A"}}`, `{"uri":{"prefix":"/a/b"}}`, true},
		{`{"uri":{"prefix":"/a"}}`, `{"ignoreUriCase":true,"uri":{"prefix":"/a/b"}}`, false},
		{`{"uri":{"prefix":"/1"}}`, `{"ignoreUriCase":true,"uri":{"prefix":"/1/b"}}`, true},
		{`{"ignoreUriCase":true,"uri":{"regex":"/a"}}`, `{"uri":{"exact":"/A"}}`, false},
		{`{"uri":{"regex":"/[a-z]*"}}`, `{"ignoreUriCase":true,"uri":{"exact":"/a"}}`, false},
		{`{"port":80}`, `{"port":80}`, true}, {`{"port":80}`, `{}`, false}, {`{}`, `{"port":80}`, true},
		{`{"port":80}`, `{"port":81}`, false},
		{`{"sourceNamespace":"a"}`, `{}`, false}, {`{"sourceNamespace":"a"}`, `{"sourceNamespace":"a","uri":{"exact":"/"}}`, true},
		{`{"sourceLabels":{"app":"a"}}`, `{"sourceLabels":{"app":"a","v":"1"}}`, true},
		{`{"sourceLabels":{"app":"a","v":"1"}}`, `{"sourceLabels":{"app":"a"}}`, false},
		{`{"gateways":["gw"]}`, `{}`, false}, {`{"gateways":["gw","mesh"]}`, `{"gateways":["ns/gw"]}`, true},
		{`{"gateways":["gw"]}`, `{"gateways":["gw","mesh"]}`, false},
		{`{"name":"a","statPrefix":"a"}`, `{"name":"b"}`, true},
	} {
		if got := RequestOf(match(t, c.a), "ns").Contains(RequestOf(match(t, c.b), "ns")); got != c.want {
			t.Errorf("%s contains %s: %t", c.a, c.b, got)
		}
	}
	every := RequestOf(nil, "ns")
	if !every.CatchAll() || !every.Contains(RequestOf(match(t, `{"uri":{"prefix":"/a"}}`), "ns")) {
		t.Error("a rule without a match does not take every request")
	}
	for text, want := range map[string]bool{
		`{"uri":{"prefix":"/"}}`: true, `{"port":80}`: true, `{"uri":{"regex":".*"}}`: false,
		`{"method":{"exact":"GET"}}`: false,
	} {
		if RequestOf(match(t, text), "ns").CatchAll() != want {
			t.Errorf("%s takes every request: %t", text, !want)
		}
	}
	if on := RequestOf(match(t, `{"gateways":["gw"]}`), "ns"); on.On("mesh") != nil || !on.On("ns/gw").Contains(every) {
		t.Error("a match for one gateway is for another")
	}
}

// request is what a proxy compares with a match.
type request struct {
	path                string
	header, query       string
	hasHeader, hasQuery bool
}

func (r request) takenBy(m *networkingv1alpha3.HTTPMatchRequest) bool {
	is := func(s *networkingv1alpha3.StringMatch, value string, fold bool) bool {
		switch k := s.GetMatchType().(type) {
		case *networkingv1alpha3.StringMatch_Exact:
			return value == k.Exact || fold && strings.EqualFold(value, k.Exact)
		case *networkingv1alpha3.StringMatch_Prefix:
			return strings.HasPrefix(value, k.Prefix) || fold && strings.HasPrefix(strings.ToLower(value), strings.ToLower(k.Prefix))
		case *networkingv1alpha3.StringMatch_Regex:
			return regexp.MustCompile("^(?:" + k.Regex + ")$").MatchString(value)
		}
		return true
	}
	if m.Uri != nil && !is(m.Uri, r.path, m.IgnoreUriCase) {
		return false
	}
	if s, ok := m.Headers["h"]; ok && (!r.hasHeader || !is(s, r.header, false)) {
		return false
	}
	if s, ok := m.WithoutHeaders["h"]; ok {
		if s.GetMatchType() == nil && r.hasHeader || s.GetMatchType() != nil && is(s, r.header, false) {
			return false
		}
	}
	s, ok := m.QueryParams["q"]
	return !ok || r.hasQuery && is(s, r.query, false)
}

// TestIndex: of random matches, an Index finds the first that contains another, and no request shows that it does not.
func TestIndex(t *testing.T) {
	const seed = 41
	random := rand.New(rand.NewPCG(seed, 0))
	paths := []string{"/", "/a", "/A", "/ab", "/a/b", "/b", "/1", "/1/a", "/abc"}
	values := []string{"", "a", "ab", "b", "A"}
	text := func(of []string) *networkingv1alpha3.StringMatch {
		one := of[random.IntN(len(of))]
		switch random.IntN(6) {
		case 0, 1:
			return stringMatch(t, "exact "+one)
		case 2, 3:
			if one != "" {
				return stringMatch(t, "prefix "+one)
			}
		case 4:
			more := []string{".*", ".+", "[ab]*", "(.*)", "|b.*", "b?", "$", `\b.*`, "x*.*"}
			return stringMatch(t, "regex "+[]string{"", "^", "(?i)"}[random.IntN(3)]+one+more[random.IntN(len(more))])
		}
		return &networkingv1alpha3.StringMatch{}
	}
	draw := func() *networkingv1alpha3.HTTPMatchRequest {
		m := &networkingv1alpha3.HTTPMatchRequest{IgnoreUriCase: random.IntN(4) == 0}
		if random.IntN(4) > 0 {
			if m.Uri = text(paths); m.Uri.MatchType == nil {
				m.Uri = nil
			}
		}
		one := func(share int, name string, into *map[string]*networkingv1alpha3.StringMatch) {
			if random.IntN(share) == 0 {
				*into = map[string]*networkingv1alpha3.StringMatch{name: text(values)}
			}
		}
		one(3, "h", &m.Headers)
		one(5, "h", &m.WithoutHeaders)
		one(5, "q", &m.QueryParams)
		return m
	}
	var requests []request
	for _, p := range append(paths, "/aB", "/ax", "/b/x", "/1/ab") {
		for i := range len(values) + 1 {
			for j := range len(values) + 1 {
				r := request{path: p, hasHeader: i < len(values), hasQuery: j < len(values)}
				if r.hasHeader {
					r.header = values[i]
				}
				if r.hasQuery {
					r.query = values[j]
				}
				requests = append(requests, r)
			}
		}
	}
	contained := 0
	for range 60 {
		var index Index[int]
		var before []*networkingv1alpha3.HTTPMatchRequest
		for range 40 {
			m := draw()
			r, first := RequestOf(m, ""), -1
			for i, b := range before {
				if RequestOf(b, "").Contains(r) {
					first = i
					break
				}
			}
			i, found := index.Containing(r, func() bool { return true })
			if found != (first >= 0) || found && i != first {
				t.Fatalf("%s is contained in number %d, %t, by comparison in number %d of %v", m, i, found, first, before)
			}
			if found {
				contained++
				for _, q := range requests {
					if q.takenBy(m) && !q.takenBy(before[i]) {
						t.Fatalf("%s does not take %+v, which %s takes", before[i], q, m)
					}
				}
			}
			index.Add(r, len(before))
			before = append(before, m)
		}
	}
	if contained < 500 {
		t.Errorf("only %d of the matches are contained in another", contained)
	}
}
