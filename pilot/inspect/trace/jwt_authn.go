package trace

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// tokenFilter is the filter that validates tokens. payloadKey is the metadata key of their claims.
const (
	tokenFilter = "envoy.filters.http.jwt_authn"
	payloadKey  = "payload"
)

// Claims decodes the claims of a token in the compact form of RFC 7519. It does not verify the signature.
func Claims(token string) (map[string]any, error) {
	part := strings.Split(strings.TrimSpace(token), ".")
	if len(part) != 3 {
		return nil, fmt.Errorf("it is not a token: it has %d parts between dots, not 3", len(part))
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(part[1], "="))
	if err != nil {
		return nil, fmt.Errorf("it is not a token: its second part is not base64url: %w", err)
	}
	claims := map[string]any{}
	if err := json.Unmarshal(text, &claims); err != nil {
		return nil, fmt.Errorf("it is not a token: its second part is no JSON object: %w", err)
	}
	return claims, nil
}

// outcome is the result of a requirement for a request.
type outcome struct {
	missing  bool   // whether there is no token
	refused  string // why the token is refused
	status   int
	provider *jwtv3.JwtProvider // provider of the valid token; nil if no token is valid
	claims   map[string]any
	header   string // header of the token; empty if it is elsewhere
}

func (v outcome) passes() bool { return !v.missing && v.refused == "" }

// jwtAuthn validates tokens. It records the result as a step.
func jwtAuthn(x *stream, _ filter, m *jwtv3.JwtAuthentication) bool {
	a, r := x.Answer, &x.request
	path, _, _ := strings.Cut(r.Path, "?")
	for _, rule := range m.GetRules() {
		if prefix := rule.GetMatch().GetPrefix(); !strings.HasPrefix(path, prefix) {
			continue
		}
		v := require(m, rule.GetRequires(), *r)
		switch {
		case v.missing:
			a.step(Step{What: "token", Name: "none", Reason: "there is no token where policies look for one, and one is required"})
			a.end(401, "there is no token")
			return false
		case v.refused != "":
			a.step(Step{What: "token", Name: "refused", Reason: v.refused})
			a.end(v.status, "the token is refused: %s", v.refused)
			return false
		case v.provider == nil:
			a.step(Step{What: "token", Name: "none", Reason: "there is no token where policies look for one, and the request continues without"})
			return true
		}
		accept(a, v, r)
		if v.provider.GetClearRouteCache() {
			x.match()
		}
		return true
	}
	return true
}

// accept lets a request continue with a valid token.
func accept(a *Answer, v outcome, r *Request) {
	r.payload = maps.Clone(v.claims)
	for _, name := range v.provider.GetNormalizePayloadInMetadata().GetSpaceDelimitedClaims() {
		if text, ok := r.payload[name].(string); ok {
			list := lists.Map(strings.Fields(text), func(x string) any { return x })
			r.payload[name] = list
		}
	}
	r.Headers = maps.Clone(r.Headers)
	if r.Headers == nil {
		r.Headers = map[string]string{}
	}
	s := Step{What: "token", Name: "valid", Reason: fmt.Sprintf("of issuer %s; its signature is not verified here", v.provider.GetIssuer())}
	if !v.provider.GetForward() {
		delete(r.Headers, v.header)
		r.Claims = nil
		s.Details = append(s.Details, "it is not passed on")
	}
	for _, h := range v.provider.GetClaimToHeaders() {
		if value, ok := v.claims[h.GetClaimName()]; ok {
			r.Headers[strings.ToLower(h.GetHeaderName())] = fmt.Sprint(value)
		}
	}
	a.step(s)
}

// require evaluates a requirement for a request.
func require(f *jwtv3.JwtAuthentication, q *jwtv3.JwtRequirement, r Request) outcome {
	switch x := q.GetRequiresType().(type) {
	case *jwtv3.JwtRequirement_ProviderName:
		return byProvider(f.GetProviders()[x.ProviderName], r)
	case *jwtv3.JwtRequirement_ProviderAndAudiences:
		p := f.GetProviders()[x.ProviderAndAudiences.GetProviderName()]
		return byProvider(p, r)
	case *jwtv3.JwtRequirement_RequiresAny:
		return requireAny(f, x.RequiresAny.GetRequirements(), r)
	case *jwtv3.JwtRequirement_RequiresAll:
		var all outcome
		for _, q := range x.RequiresAll.GetRequirements() {
			v := require(f, q, r)
			if !v.passes() {
				return v
			}
			if v.provider != nil {
				all = v
			}
		}
		return all
	}
	return outcome{} // nothing is required, or a token may be missing
}

// requireAny evaluates a list of requirements of which one must be satisfied. If one of them allows requests without a
// token, a request without any token satisfies it.
func requireAny(f *jwtv3.JwtAuthentication, list []*jwtv3.JwtRequirement, r Request) outcome {
	mayBeMissing, mayFail := false, false
	out := outcome{missing: true}
	for _, q := range list {
		if q.GetAllowMissing() != nil || q.GetAllowMissingOrFailed() != nil {
			mayBeMissing, mayFail = true, mayFail || q.GetAllowMissingOrFailed() != nil
			continue
		}
		v := require(f, q, r)
		if v.passes() {
			return v
		}
		if !v.missing && (out.missing || out.refused == "") {
			out = v
		}
	}
	if mayFail || mayBeMissing && out.missing {
		return outcome{}
	}
	return out
}

// byProvider evaluates a provider for a request.
func byProvider(p *jwtv3.JwtProvider, r Request) outcome {
	if p == nil {
		return outcome{refused: "its provider is not configured", status: 401}
	}
	claims, header, err := find(p, r)
	switch {
	case err != nil:
		return outcome{refused: err.Error(), status: 401}
	case claims == nil:
		return outcome{missing: true}
	}
	issuer, says := claims["iss"].(string)
	switch {
	case p.GetIssuer() != "" && says && issuer != p.GetIssuer():
		return outcome{refused: fmt.Sprintf("its issuer is %s, and not %s", issuer, p.GetIssuer()), status: 401}
	case expired(claims["exp"], r.Now, 1):
		return outcome{refused: "it has expired", status: 401}
	case expired(claims["nbf"], r.Now, -1):
		return outcome{refused: "it is not valid yet", status: 401}
	}
	if list := p.GetAudiences(); len(list) > 0 && claims["aud"] != nil {
		if !slices.ContainsFunc(texts(claims["aud"]), func(x string) bool { return slices.Contains(list, x) }) {
			return outcome{refused: fmt.Sprintf("its audience is %v, and none of %s", claims["aud"], strings.Join(list, ", ")), status: 403}
		}
	}
	if !says && p.GetIssuer() != "" { // the claims of a query belong to a valid token
		claims = maps.Clone(claims)
		claims["iss"] = p.GetIssuer()
	}
	return outcome{provider: p, claims: claims, header: header}
}

// expired reports whether a time of a token is before now, or with sign -1 after it. Envoy allows for a clock skew of
// one minute.
func expired(claim any, now time.Time, sign time.Duration) bool {
	seconds, ok := claim.(float64)
	return ok && !now.IsZero() && now.Sub(time.Unix(int64(seconds), 0))*sign > time.Minute
}

func texts(v any) (list []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, x := range v {
			if s, ok := x.(string); ok {
				list = append(list, s)
			}
		}
	}
	return list
}

// find returns the claims of the token that a provider finds in a request, and the header that has it.
func find(p *jwtv3.JwtProvider, r Request) (claims map[string]any, header string, err error) {
	headers, params := p.GetFromHeaders(), p.GetFromParams()
	if len(headers)+len(params)+len(p.GetFromCookies()) == 0 {
		headers, params = []*jwtv3.JwtHeader{{Name: "Authorization", ValuePrefix: "Bearer "}}, []string{"access_token"}
	}
	for _, h := range headers {
		name := strings.ToLower(h.GetName())
		value, there := r.Headers[name]
		if _, token, found := strings.Cut(value, h.GetValuePrefix()); there && found {
			claims, err := Claims(token)
			return claims, name, err
		}
	}
	_, query, _ := strings.Cut(r.Path, "?")
	values, _ := url.ParseQuery(query)
	for _, name := range params {
		if values.Has(name) {
			claims, err := Claims(values.Get(name))
			return claims, "", err
		}
	}
	for _, name := range p.GetFromCookies() {
		for part := range strings.SplitSeq(r.Headers["cookie"], ";") {
			if k, v, _ := strings.Cut(strings.TrimSpace(part), "="); k == name {
				claims, err := Claims(v)
				return claims, "", err
			}
		}
	}
	return r.Claims, "", nil
}

// payloadMatches reports whether the claims of a valid token match a matcher.
func payloadMatches(m *matcherv3.MetadataMatcher, r Request) bool {
	var value any
	if path := m.GetPath(); m.GetFilter() == tokenFilter && len(path) > 0 && path[0].GetKey() == payloadKey && r.payload != nil {
		value = r.payload
		for _, s := range path[1:] {
			fields, _ := value.(map[string]any)
			value = fields[s.GetKey()]
		}
	}
	return valueMatches(m.GetValue(), value) != m.GetInvert()
}

func valueMatches(m *matcherv3.ValueMatcher, v any) bool {
	switch x := m.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		s, ok := v.(string)
		return ok && matchString(x.StringMatch, s)
	case *matcherv3.ValueMatcher_ListMatch:
		list, _ := v.([]any)
		return slices.ContainsFunc(list, func(e any) bool { return valueMatches(x.ListMatch.GetOneOf(), e) })
	case *matcherv3.ValueMatcher_OrMatch:
		return slices.ContainsFunc(x.OrMatch.GetValueMatchers(), func(m *matcherv3.ValueMatcher) bool { return valueMatches(m, v) })
	case *matcherv3.ValueMatcher_PresentMatch:
		return v != nil && x.PresentMatch
	case *matcherv3.ValueMatcher_BoolMatch:
		b, ok := v.(bool)
		return ok && b == x.BoolMatch
	case *matcherv3.ValueMatcher_DoubleMatch:
		n, ok := v.(float64)
		if r := x.DoubleMatch.GetRange(); r != nil {
			return ok && n >= r.GetStart() && n < r.GetEnd()
		}
		return ok && n == x.DoubleMatch.GetExact()
	}
	return false
}

// claimPath returns the path of a claim as users write it.
func claimPath(m *matcherv3.MetadataMatcher) string {
	keys := lists.Map(m.GetPath(), func(s *matcherv3.MetadataMatcher_PathSegment) string { return s.GetKey() })
	return strings.TrimPrefix(strings.Join(keys, "."), payloadKey+".")
}
