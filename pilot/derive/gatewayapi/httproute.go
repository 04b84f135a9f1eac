package gatewayapi

import (
	"fmt"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// httpRule is one match of a rule, with its action.
type httpRule struct {
	precedence
	http        *networkingv1alpha3.HTTPRoute
	hash        uint64 // hash of the match
	rule, match int    // indexes in the spec; match is -1 for a rule without matches
}

// precedence holds the properties by which matches are ordered, within a route and among routes.
type precedence struct {
	path    int // rank of the path match: exact, prefix, regular expression, none
	length  int // length of the path
	method  bool
	headers int
	queries int
}

const (
	pathNone = iota
	pathRegex
	pathPrefix
	pathExact
)

// ruleName returns the name of the routes that are made from a rule.
func (x *route) ruleName(name *gatewayv1.SectionName, i int) string {
	if name != nil && *name != "" {
		return string(*name)
	}
	return fmt.Sprintf("%s.%s.%d", x.object.Namespace, x.object.Name, i)
}

// httpRules translates the rules of a HTTPRoute.
func (x *route) httpRules(rules []gatewayv1.HTTPRouteRule) {
	for i, rule := range rules {
		field := fmt.Sprintf("spec.rules[%d]", i)
		h := &networkingv1alpha3.HTTPRoute{Name: x.ruleName(rule.Name, i)}
		prefix := "" // path prefix of all matches, for rewrites
		for _, m := range rule.Matches {
			if m.Path != nil && m.Path.Value != nil && (m.Path.Type == nil || *m.Path.Type == gatewayv1.PathMatchPathPrefix) {
				prefix = strings.TrimSuffix(*m.Path.Value, "/")
			}
		}
		supported := x.httpFilters(h, rule.Filters, field, prefix)
		x.timeouts(h, rule.Timeouts, field)
		x.retry(h, rule.Retry, rule.Timeouts, field)
		if rule.SessionPersistence != nil {
			x.found(field+".sessionPersistence", diag.Warning, "use consistentHash of a DestinationRule", "it is not supported: it has no effect")
		}
		if h.Redirect == nil {
			var refs []httpBackend
			for _, b := range rule.BackendRefs {
				ref := httpBackend{BackendRef: b.BackendRef}
				for _, f := range b.Filters {
					ref.filters = append(ref.filters, headerFilter{string(f.Type), f.RequestHeaderModifier, f.ResponseHeaderModifier})
				}
				refs = append(refs, ref)
			}
			x.httpBackends(h, refs, field)
		}
		addRule(x, i, h, supported, rule.Matches, x.httpMatch)
	}
	if len(rules) == 0 {
		h := &networkingv1alpha3.HTTPRoute{Name: x.ruleName(nil, 0)}
		x.httpBackends(h, nil, "spec.rules")
		addRule(x, 0, h, true, nil, x.httpMatch)
	}
}

// addRule adds the matches of a rule, translated by convert. A rule without matches is for every request. A rule that
// is not supported is answered with 500.
func addRule[M any](x *route, i int, h *networkingv1alpha3.HTTPRoute, supported bool, matches []M,
	convert func(M, string) (*networkingv1alpha3.HTTPMatchRequest, precedence, bool)) {
	if !supported {
		h = unserved(h)
	}
	if len(matches) == 0 {
		var every M
		match, p, _ := convert(every, "spec.rules")
		x.addHTTP(httpRule{precedence: p, http: h, rule: i, match: -1}, match)
	}
	for j, m := range matches {
		if match, p, ok := convert(m, fmt.Sprintf("spec.rules[%d].matches[%d]", i, j)); ok {
			x.addHTTP(httpRule{precedence: p, http: h, rule: i, match: j}, match)
		}
	}
}

// addHTTP adds one match of a rule.
func (x *route) addHTTP(r httpRule, m *networkingv1alpha3.HTTPMatchRequest) {
	r.http = proto.Clone(r.http).(*networkingv1alpha3.HTTPRoute)
	if text, err := (proto.MarshalOptions{Deterministic: true}).Marshal(m); err == nil && len(text) > 0 {
		r.http.Match, r.hash = []*networkingv1alpha3.HTTPMatchRequest{m}, xxhash.Sum64(text)
	}
	x.http = append(x.http, r)
}

func exact(s string) *networkingv1alpha3.StringMatch {
	return &networkingv1alpha3.StringMatch{MatchType: &networkingv1alpha3.StringMatch_Exact{Exact: s}}
}

func regex(s string) *networkingv1alpha3.StringMatch {
	return &networkingv1alpha3.StringMatch{MatchType: &networkingv1alpha3.StringMatch_Regex{Regex: s}}
}

func prefixed(s string) *networkingv1alpha3.StringMatch {
	return &networkingv1alpha3.StringMatch{MatchType: &networkingv1alpha3.StringMatch_Prefix{Prefix: s}}
}

// httpMatch returns a match and its precedence. It returns false if proxies do not accept the match.
func (x *route) httpMatch(m gatewayv1.HTTPRouteMatch, field string) (out *networkingv1alpha3.HTTPMatchRequest, p precedence, ok bool) {
	out, ok = &networkingv1alpha3.HTTPMatchRequest{}, true
	value, kind := "/", gatewayv1.PathMatchPathPrefix
	if m.Path != nil && m.Path.Value != nil {
		value = *m.Path.Value
	}
	if m.Path != nil && m.Path.Type != nil {
		kind = *m.Path.Type
	}
	switch kind {
	case gatewayv1.PathMatchExact:
		out.Uri, p.path = exact(value), pathExact
	case gatewayv1.PathMatchRegularExpression:
		ok = x.expression(value, field+".path.value")
		out.Uri, p.path = regex(value), pathRegex
	default:
		if value != "/" {
			value = strings.TrimSuffix(value, "/")
		}
		out.Uri, p.path = prefixed(value), pathPrefix
	}
	p.length = len(value)
	if m.Method != nil {
		out.Method, p.method = exact(string(*m.Method)), true
	}
	for i, h := range m.Headers {
		is := h.Type != nil && *h.Type == gatewayv1.HeaderMatchRegularExpression
		ok = x.matchValue(&out.Headers, string(h.Name), h.Value, is, strings.EqualFold, fmt.Sprintf("%s.headers[%d]", field, i)) && ok
	}
	for i, q := range m.QueryParams {
		is := q.Type != nil && *q.Type == gatewayv1.QueryParamMatchRegularExpression
		ok = x.matchValue(&out.QueryParams, string(q.Name), q.Value, is, equal, fmt.Sprintf("%s.queryParams[%d]", field, i)) && ok
	}
	p.headers, p.queries = len(out.Headers), len(out.QueryParams)
	return out, p, ok
}

func equal(a, b string) bool { return a == b }

// matchValue adds a required value for a name. If a name is repeated, the first value is used. It returns false if
// proxies do not accept the match.
func (x *route) matchValue(into *map[string]*networkingv1alpha3.StringMatch, name, value string, expression bool,
	same func(a, b string) bool, field string) bool {
	for other := range *into {
		if same(other, name) {
			x.found(field+".name", diag.Warning, "remove it",
				fmt.Sprintf("an earlier entry of the match has name %s: this one has no effect", other))
			return true
		}
	}
	if *into == nil {
		*into = map[string]*networkingv1alpha3.StringMatch{}
	}
	if !expression {
		(*into)[name] = exact(value)
		return true
	}
	(*into)[name] = regex(value)
	return x.expression(value, field+".value")
}

// duration parses a duration of the Gateway API, which the API server has validated.
func (x *route) duration(d *gatewayv1.Duration, field string) *durationpb.Duration {
	if d == nil {
		return nil
	}
	v, err := time.ParseDuration(string(*d))
	if err != nil {
		x.found(field, diag.Error, "write a duration such as 10s", err.Error()+": it has no effect")
		return nil
	}
	return durationpb.New(v)
}

func (x *route) timeouts(h *networkingv1alpha3.HTTPRoute, t *gatewayv1.HTTPRouteTimeouts, field string) {
	if t != nil {
		h.Timeout = x.duration(t.Request, field+".timeouts.request")
	}
}

// Conditions of retries, in addition to status codes.
const retryOn = "connect-failure,refused-stream,unavailable,cancelled"

func (x *route) retry(h *networkingv1alpha3.HTTPRoute, r *gatewayv1.HTTPRouteRetry, t *gatewayv1.HTTPRouteTimeouts, field string) {
	var perTry *durationpb.Duration
	if t != nil {
		perTry = x.duration(t.BackendRequest, field+".timeouts.backendRequest")
	}
	if r == nil {
		if perTry != nil && (perTry.Seconds > 0 || perTry.Nanos > 0) {
			h.Retries = &networkingv1alpha3.HTTPRetry{Attempts: 2, PerTryTimeout: perTry, RetryOn: retryOn + ",retriable-status-codes"}
		}
		return
	}
	h.Retries = &networkingv1alpha3.HTTPRetry{Attempts: 2, RetryOn: retryOn, Backoff: x.duration(r.Backoff, field+".retry.backoff")}
	if perTry != nil && (perTry.Seconds > 0 || perTry.Nanos > 0) {
		h.Retries.PerTryTimeout = perTry
	}
	if r.Attempts != nil {
		h.Retries.Attempts = int32(*r.Attempts)
	}
	for _, code := range r.Codes {
		h.Retries.RetryOn += fmt.Sprintf(",%d", code)
	}
}

// httpBackend is a backend of a rule, with filters for its requests alone.
type httpBackend struct {
	gatewayv1.BackendRef
	filters []headerFilter
}

// headerFilter is a filter of a HTTPRoute or a GRPCRoute, by its type, with its operations on headers.
type headerFilter struct {
	kind              string
	request, response *gatewayv1.HTTPHeaderFilter
}

// headers translates a filter of headers. It returns false if the filter is of another type.
func (x *route) headers(into **networkingv1alpha3.Headers, f headerFilter, field string) bool {
	switch f.kind {
	case string(gatewayv1.HTTPRouteFilterRequestHeaderModifier):
		*into = x.withRequest(*into, f.request, field)
	case string(gatewayv1.HTTPRouteFilterResponseHeaderModifier):
		*into = x.withResponse(*into, f.response, field)
	default:
		return false
	}
	return true
}

// unserved returns the action for a rule with an unsupported filter.
func unserved(h *networkingv1alpha3.HTTPRoute) *networkingv1alpha3.HTTPRoute {
	return &networkingv1alpha3.HTTPRoute{Name: h.Name, Match: h.Match, DirectResponse: &networkingv1alpha3.HTTPDirectResponse{Status: 500}}
}

// httpBackends sets the backends of a rule. If no backend gets requests, they are answered with 500.
func (x *route) httpBackends(h *networkingv1alpha3.HTTPRoute, refs []httpBackend, field string) {
	for j, b := range refs {
		x.leadsTo(b.BackendObjectReference)
		at := fmt.Sprintf("%s.backendRefs[%d]", field, j)
		if weightOf(b.BackendRef) == 0 {
			continue
		}
		to, _ := x.backend(b.BackendObjectReference, at, refused500)
		d := &networkingv1alpha3.HTTPRouteDestination{Destination: to, Weight: weightOf(b.BackendRef)}
		for k, f := range b.filters {
			if field := fmt.Sprintf("%s.filters[%d]", at, k); !x.headers(&d.Headers, f, field) {
				x.unsupportedFilter(f.kind, field)
				d.Destination = &networkingv1alpha3.Destination{Host: names.NoService}
			}
		}
		h.Route = append(h.Route, d)
	}
	if len(h.Route) == 0 {
		h.DirectResponse = &networkingv1alpha3.HTTPDirectResponse{Status: 500}
		x.found(field+".backendRefs", diag.Warning, "name a backend", "no backend gets requests: they are answered with 500")
	}
}

// unsupportedFilter records a filter that is not supported: requests may not pass without it. For a filter of an
// extension the reference is not resolved. For an unknown type the route is not accepted.
func (x *route) unsupportedFilter(kind, field string) {
	message := fmt.Sprintf("unsupported filter type %q", kind)
	if kind != string(gatewayv1.HTTPRouteFilterExtensionRef) && kind != string(gatewayv1.HTTPRouteFilterRequestMirror) {
		x.refuse(message, field+".type", "remove it")
		return
	}
	x.unresolve("InvalidFilter", message, field, "remove it", refused500)
}
