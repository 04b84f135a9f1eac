package trace

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// tokenFilter is the filter that validates tokens. payloadKey is the metadata key of their claims.
const (
	tokenFilter = "envoy.filters.http.jwt_authn"
	payloadKey  = "payload"
)

// ParseToken decodes the claims and the JOSE header of a token in the compact form of RFC 7519. It does not verify the
// signature.
func ParseToken(text string) (claims, header map[string]any, err error) {
	t, err := parseToken(text)
	return t.claims, t.header, err
}

// token is a token of a request.
type token struct {
	claims map[string]any
	// header is the token's JOSE header, or nil if only claims are known.
	header map[string]any
	in     string // name of the header of the request that has the token; empty if it is elsewhere
}

// parseToken decodes a token in the compact form of RFC 7519, without verifying its signature.
func parseToken(text string) (t token, err error) {
	part := strings.Split(strings.TrimSpace(text), ".")
	if len(part) != 3 {
		return t, fmt.Errorf("it is not a token: it has %d parts between dots, not 3", len(part))
	}
	for n, to := range []*map[string]any{&t.header, &t.claims} {
		ordinal := []string{"first", "second"}[n]
		decoded, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(part[n], "="))
		if err != nil {
			return token{}, fmt.Errorf("it is not a token: its %s part is not base64url: %w", ordinal, err)
		}
		if err := json.Unmarshal(decoded, to); err != nil {
			return token{}, fmt.Errorf("it is not a token: its %s part is no JSON object: %w", ordinal, err)
		}
	}
	signature, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(part[2], "="))
	if err != nil || len(signature) == 0 {
		return token{}, errors.New("it is not a token: its third part is no signature in base64url")
	}
	return t, nil
}

// malformed returns which part of a whole token has a type that RFC 7519 and RFC 7515 do not allow, or "".
func (t token) malformed() string {
	if t.header == nil {
		return ""
	}
	for _, name := range []string{"iss", "sub", "jti"} {
		if _, isText := t.claims[name].(string); t.claims[name] != nil && !isText {
			return "its claim " + name + " is no string"
		}
	}
	for _, name := range []string{"exp", "nbf", "iat"} {
		if n, isNumber := t.claims[name].(float64); t.claims[name] != nil && (!isNumber || n != math.Trunc(n) || n < 0) {
			return "its claim " + name + " is no whole number of seconds"
		}
	}
	if aud := t.claims["aud"]; aud != nil && texts(aud) == nil {
		return "its claim aud is no string and no list of strings"
	}
	if _, isText := t.header["kid"].(string); t.header["kid"] != nil && !isText {
		return "its key ID is no string"
	}
	return ""
}

// families are the types of keys by the beginning of the algorithms that they verify, as RFC 7518 and RFC 8037 name
// them.
var families = map[string]string{"RS": "RSA", "PS": "RSA", "ES": "EC", "HS": "oct", "Ed": "OKP"}

// unverifiable returns why no key of a set verifies the token, whatever its signature is, or "" if one may.
func (t token) unverifiable(set string) string {
	if set == jwks.AcceptsNone {
		return "there are no keys of its issuer"
	}
	if t.header == nil {
		return ""
	}
	alg, _ := t.header["alg"].(string)
	kid, _ := t.header["kid"].(string)
	family := families[alg[:min(2, len(alg))]]
	if family == "" {
		return fmt.Sprintf("its algorithm is %q, which Envoy does not take", alg)
	}
	var known struct {
		Keys []struct{ Kty, Kid, Alg string } `json:"keys"`
	}
	if json.Unmarshal([]byte(set), &known) != nil {
		return ""
	}
	for _, k := range known.Keys {
		if k.Kty == family && (kid == "" || k.Kid == "" || k.Kid == kid) && (k.Alg == "" || k.Alg == alg) {
			return ""
		}
	}
	return fmt.Sprintf("no key of its issuer is for its algorithm %s and its key ID %q", alg, kid)
}

// judged is the result of a requirement for a request.
type judged struct {
	missing bool   // whether there is no token
	of      string // issuer of the missing token; empty if any issuer's would do
	refused string // why the token is refused
	foreign bool   // whether it is refused as it is of another issuer
	status  int
	valid   []validToken
}

// validToken is a valid token and the provider that accepts it.
type validToken struct {
	token
	provider *jwtv3.JwtProvider
}

func (v judged) passes() bool { return !v.missing && v.refused == "" }

// jwtAuthn validates tokens. It records the result as a step.
func jwtAuthn(x *stream, _ filter, m *jwtv3.JwtAuthentication) bool {
	a := x.Answer
	if m.GetBypassCorsPreflight() && x.request.isPreflight() {
		return true
	}
	path, _, _ := strings.Cut(x.request.Path, "?")
	for _, rule := range m.GetRules() {
		if prefix := rule.GetMatch().GetPrefix(); !strings.HasPrefix(path, prefix) {
			continue
		}
		if x.tokenOn = unclearToken(m, x.request); x.tokenOn != "" {
			x.dependsOn(accesslog.Token, 401, "the token is judged by %s", x.tokenOn)
			return true
		}
		v := require(m, rule.GetRequires(), x.request)
		for _, p := range m.GetProviders() { // clients cannot forge the headers of claims
			for _, h := range p.GetClaimToHeaders() {
				x.request.removeHeader(strings.ToLower(h.GetHeaderName()))
			}
			if name := p.GetForwardPayloadHeader(); name != "" {
				x.request.removeHeader(strings.ToLower(name))
			}
		}
		switch {
		case v.missing:
			none := "there is no token"
			if v.of != "" {
				none += " of issuer " + v.of
			}
			a.step(Step{What: "token", Name: "none", Reason: none + " where policies look for one, and one is required",
				Details: []string{"give it by --jwt or --claim"}})
			a.end(accesslog.Token, 401, "%s", none)
			return false
		case v.refused != "":
			a.step(Step{What: "token", Name: "refused", Reason: v.refused})
			a.end(accesslog.Token, v.status, "the token is refused: %s", v.refused)
			return false
		case len(v.valid) == 0:
			a.step(Step{What: "token", Name: "none", Reason: "there is no token where policies look for one, and the request continues without"})
			return true
		}
		clears := false
		for _, t := range v.valid {
			if t.provider.GetLocalJwks().GetInlineString() == jwks.NotFetched {
				x.dependsOn(accesslog.Token, 401, "the server has not fetched the keys of issuer %s: until it has, the token is refused",
					t.provider.GetIssuer())
			}
			x.accept(t)
			clears = clears || t.provider.GetClearRouteCache()
		}
		if clears {
			x.match()
		}
		return true
	}
	return true
}

// unclearToken returns what the header depends on in which a provider looks for tokens, or "" if all such headers are
// known, or the claims of the token.
func unclearToken(m *jwtv3.JwtAuthentication, r Request) string {
	if r.Claims != nil {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetProviders())) {
		p := m.GetProviders()[name]
		headers := p.GetFromHeaders()
		if len(headers)+len(p.GetFromParams())+len(p.GetFromCookies()) == 0 {
			headers = []*jwtv3.JwtHeader{{Name: "authorization"}}
		}
		for _, h := range headers {
			if on := r.unclearBy(strings.ToLower(h.GetName())); on != "" {
				return on
			}
		}
	}
	return ""
}

// accept lets a request continue with a valid token.
func (x *stream) accept(v validToken) {
	x.payload = maps.Clone(v.claims)
	for _, name := range v.provider.GetNormalizePayloadInMetadata().GetSpaceDelimitedClaims() {
		if text, ok := x.payload[name].(string); ok {
			list := lists.Map(strings.Fields(text), func(x string) any { return x })
			x.payload[name] = list
		}
	}
	s := Step{What: "token", Name: "valid", Reason: fmt.Sprintf("of issuer %s; its signature is not verified here", v.provider.GetIssuer())}
	if !v.provider.GetForward() {
		x.request.removeHeader(v.in)
		x.request.Claims = nil
		s.Details = append(s.Details, "it is not passed on")
	}
	for _, h := range v.provider.GetClaimToHeaders() {
		if value := claimAt(v.claims, strings.Split(h.GetClaimName(), ".")); value != nil {
			x.request.setHeader(strings.ToLower(h.GetHeaderName()), claimText(value))
		}
	}
	if name := strings.ToLower(v.provider.GetForwardPayloadHeader()); name != "" {
		x.request.blur(name, "the value of header "+name+", in which the proxy writes the payload of the token")
	}
	x.step(s)
}

// claimAt returns the claim at a path, or nil if there is none.
func claimAt(claims map[string]any, path []string) any {
	var value any = claims
	for _, key := range path {
		fields, _ := value.(map[string]any)
		value = fields[key]
	}
	return value
}

// claimText returns a claim as Envoy writes it into a header: a list or an object as base64url of its JSON.
func claimText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
			return strconv.FormatInt(int64(v), 10)
		}
		return strconv.FormatFloat(v, 'g', 6, 64)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// require evaluates a requirement for a request.
func require(f *jwtv3.JwtAuthentication, q *jwtv3.JwtRequirement, r Request) judged {
	switch x := q.GetRequiresType().(type) {
	case *jwtv3.JwtRequirement_ProviderName:
		p := f.GetProviders()[x.ProviderName]
		return byProvider(p, p.GetAudiences(), seenBy(f, p, r))
	case *jwtv3.JwtRequirement_ProviderAndAudiences:
		p := f.GetProviders()[x.ProviderAndAudiences.GetProviderName()]
		return byProvider(p, x.ProviderAndAudiences.GetAudiences(), seenBy(f, p, r))
	case *jwtv3.JwtRequirement_RequiresAny:
		return requireAny(f, x.RequiresAny.GetRequirements(), r)
	case *jwtv3.JwtRequirement_RequiresAll:
		var all judged
		for _, q := range x.RequiresAll.GetRequirements() {
			v := require(f, q, r)
			if !v.passes() {
				return v
			}
			all.valid = append(all.valid, v.valid...)
		}
		return all
	}
	return judged{} // nothing is required, or a token may be missing
}

// seenBy returns a request as a provider sees it. A token that is given without its place is where the provider of its
// issuer looks for it. A provider of another issuer does not see it, unless it looks there too.
func seenBy(f *jwtv3.JwtAuthentication, p *jwtv3.JwtProvider, r Request) Request {
	issuer, ok := r.Claims["iss"].(string)
	if !ok || issuer == p.GetIssuer() {
		return r
	}
	own, others := places(p), false
	for _, q := range f.GetProviders() {
		if q.GetIssuer() != issuer {
			continue
		}
		if others = true; slices.ContainsFunc(places(q), func(at string) bool { return slices.Contains(own, at) }) {
			return r
		}
	}
	if others {
		r.Claims, r.TokenHeader = nil, nil
	}
	return r
}

// places returns where a provider looks for tokens, in comparable form.
func places(p *jwtv3.JwtProvider) (list []string) {
	for _, h := range p.GetFromHeaders() {
		list = append(list, "header "+strings.ToLower(h.GetName())+" "+h.GetValuePrefix())
	}
	for _, name := range p.GetFromParams() {
		list = append(list, "parameter "+name)
	}
	for _, name := range p.GetFromCookies() {
		list = append(list, "cookie "+name)
	}
	if list == nil {
		return []string{"header authorization Bearer ", "parameter access_token"}
	}
	return list
}

// requireAny evaluates a list of requirements of which one must be satisfied. If one of them allows requests without a
// token, a request without any token satisfies it.
func requireAny(f *jwtv3.JwtAuthentication, list []*jwtv3.JwtRequirement, r Request) judged {
	mayBeMissing, mayFail := false, false
	out := judged{missing: true}
	for _, q := range list {
		if q.GetAllowMissing() != nil || q.GetAllowMissingOrFailed() != nil {
			mayBeMissing, mayFail = true, mayFail || q.GetAllowMissingOrFailed() != nil
			continue
		}
		v := require(f, q, r)
		if v.passes() {
			return v
		}
		if !v.missing && (out.missing || out.foreign) { // another issuer's token says less
			out = v
		}
	}
	if mayFail || mayBeMissing && out.missing {
		return judged{}
	}
	return out
}

// byProvider evaluates a provider for a request. A token for audiences must be for one of a list, unless that is empty.
func byProvider(p *jwtv3.JwtProvider, audiences []string, r Request) judged {
	if p == nil {
		return judged{refused: "its provider is not configured", status: 401}
	}
	found, err := find(p, r)
	claims := found.claims
	switch {
	case err != nil:
		return judged{refused: err.Error(), status: 401}
	case claims == nil:
		return judged{missing: true, of: p.GetIssuer()}
	}
	if wrong := found.malformed(); wrong != "" {
		return judged{refused: wrong, status: 401}
	}
	issuer, says := claims["iss"].(string)
	whole := found.header != nil // otherwise claims that are not given are those of a valid token
	switch {
	case p.GetIssuer() != "" && whole && !says:
		return judged{refused: "it has no issuer, and " + p.GetIssuer() + " is required", foreign: true, status: 401}
	case p.GetIssuer() != "" && says && issuer != p.GetIssuer():
		return judged{refused: fmt.Sprintf("its issuer is %s, and not %s", issuer, p.GetIssuer()), foreign: true, status: 401}
	case expired(claims["exp"], r.Now, 1):
		return judged{refused: "it has expired", status: 401}
	case expired(claims["nbf"], r.Now, -1):
		return judged{refused: "it is not valid yet", status: 401}
	}
	switch aud := texts(claims["aud"]); {
	case len(audiences) == 0, claims["aud"] == nil && !whole:
	case claims["aud"] == nil:
		return judged{refused: "it has no audience, and one of " + strings.Join(audiences, ", ") + " is required", status: 403}
	case !slices.ContainsFunc(lists.Map(aud, bare), func(x string) bool { return slices.Contains(lists.Map(audiences, bare), x) }):
		return judged{refused: fmt.Sprintf("its audience is %v, and none of %s", claims["aud"], strings.Join(audiences, ", ")), status: 403}
	}
	if !says && p.GetIssuer() != "" { // the claims of a query belong to a valid token
		claims = maps.Clone(claims)
		claims["iss"] = p.GetIssuer()
	}
	if local := p.GetLocalJwks().GetInlineString(); local != "" && local != jwks.NotFetched {
		if reason := found.unverifiable(local); reason != "" {
			return judged{refused: reason, status: 401}
		}
	}
	found.claims = claims
	return judged{valid: []validToken{{found, p}}}
}

// bare returns an audience without the scheme and the slash at its end, which Envoy does not compare.
func bare(audience string) string {
	audience = strings.TrimPrefix(strings.TrimPrefix(audience, "https://"), "http://")
	return strings.TrimSuffix(audience, "/")
}

// expired reports whether a time of a token is before now, or with sign -1 after it. Envoy allows for a clock skew of
// one minute.
func expired(claim any, now time.Time, sign time.Duration) bool {
	seconds, ok := claim.(float64)
	return ok && seconds != 0 && !now.IsZero() && now.Sub(time.Unix(int64(seconds), 0))*sign > time.Minute
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

// find returns the token that a provider finds in a request. It has no claims if there is none.
func find(p *jwtv3.JwtProvider, r Request) (token, error) {
	headers, params := p.GetFromHeaders(), p.GetFromParams()
	if len(headers)+len(params)+len(p.GetFromCookies()) == 0 {
		headers, params = []*jwtv3.JwtHeader{{Name: "Authorization", ValuePrefix: "Bearer "}}, []string{"access_token"}
	}
	for _, h := range headers {
		name := strings.ToLower(h.GetName())
		value, there := r.Headers[name]
		if _, text, found := strings.Cut(value, h.GetValuePrefix()); there && found {
			t, err := parseToken(text)
			t.in = name
			return t, err
		}
	}
	_, query, _ := strings.Cut(r.Path, "?")
	values, _ := url.ParseQuery(query)
	for _, name := range params {
		if values.Has(name) {
			return parseToken(values.Get(name))
		}
	}
	for _, name := range p.GetFromCookies() {
		for part := range strings.SplitSeq(r.Headers["cookie"], ";") {
			if k, v, _ := strings.Cut(strings.TrimSpace(part), "="); k == name {
				return parseToken(v)
			}
		}
	}
	return token{claims: r.Claims, header: r.TokenHeader}, nil
}

// payloadMatches reports whether the claims of a valid token match a matcher.
func (x *stream) payloadMatches(m *matcherv3.MetadataMatcher) bool {
	var value any
	if keys := keysOf(m); m.GetFilter() == tokenFilter && len(keys) > 0 && keys[0] == payloadKey && x.payload != nil {
		value = claimAt(x.payload, keys[1:])
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
	return strings.TrimPrefix(strings.Join(keysOf(m), "."), payloadKey+".")
}

func keysOf(m *matcherv3.MetadataMatcher) []string {
	return lists.Map(m.GetPath(), func(s *matcherv3.MetadataMatcher_PathSegment) string { return s.GetKey() })
}
