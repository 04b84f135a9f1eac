package gatewayapi

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/substitution"
)

// httpFilters translates the filters of a rule. prefix is the path prefix of the rule's matches. It returns false if a
// filter is not supported.
func (x *route) httpFilters(h *networkingv1alpha3.HTTPRoute, filters []gatewayv1.HTTPRouteFilter, field, prefix string) (supported bool) {
	supported = true
	for i, f := range filters {
		at := fmt.Sprintf("%s.filters[%d]", field, i)
		if x.headers(&h.Headers, headerFilter{string(f.Type), f.RequestHeaderModifier, f.ResponseHeaderModifier}, at) {
			continue
		}
		switch f.Type {
		case gatewayv1.HTTPRouteFilterRequestMirror:
			x.mirror(h, f.RequestMirror, at)
		case gatewayv1.HTTPRouteFilterRequestRedirect:
			x.redirect(h, f.RequestRedirect, at+".requestRedirect")
		case gatewayv1.HTTPRouteFilterURLRewrite:
			rewrite(h, f.URLRewrite, prefix)
		case gatewayv1.HTTPRouteFilterCORS:
			cors(h, f.CORS)
		default:
			x.unsupportedFilter(string(f.Type), at)
			supported = false
		}
	}
	return supported
}

func (x *route) headerOperations(f *gatewayv1.HTTPHeaderFilter, field string) *networkingv1alpha3.Headers_HeaderOperations {
	if f == nil {
		return nil
	}
	return &networkingv1alpha3.Headers_HeaderOperations{Remove: f.Remove, Set: x.headerValues(f.Set, field+".set"),
		Add: x.headerValues(f.Add, field+".add")}
}

// headerValues returns the values of headers by name. If a name is repeated, the first value is used, as the API says.
func (x *route) headerValues(list []gatewayv1.HTTPHeader, field string) map[string]string {
	var out map[string]string
	for i, h := range list {
		at, name := fmt.Sprintf("%s[%d]", field, i), strings.ToLower(string(h.Name))
		if _, twice := out[name]; twice {
			x.found(at+".name", diag.Warning, "remove it", "an earlier entry of the list has name "+name+": this one has no effect")
			continue
		}
		if strings.ContainsFunc(h.Value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			x.refuse(fmt.Sprintf("the value %q has a control character", h.Value), at+".value", "remove the character")
			continue
		}
		lists.Put(&out, name, literal(h.Value))
	}
	return out
}

// literal escapes the percent signs of a value for Envoy, because they have no meaning in the Gateway API. A text that
// Envoy can parse as a format with commands stays unchanged, as in istiod.
func literal(value string) string {
	if why, _ := substitution.Header.Fault(value); why == "" {
		return value
	}
	return strings.ReplaceAll(value, "%", "%%")
}

func (x *route) withRequest(h *networkingv1alpha3.Headers, f *gatewayv1.HTTPHeaderFilter, field string) *networkingv1alpha3.Headers {
	if h == nil {
		h = &networkingv1alpha3.Headers{}
	}
	h.Request = x.headerOperations(f, field+".requestHeaderModifier")
	return h
}

func (x *route) withResponse(h *networkingv1alpha3.Headers, f *gatewayv1.HTTPHeaderFilter, field string) *networkingv1alpha3.Headers {
	if h == nil {
		h = &networkingv1alpha3.Headers{}
	}
	h.Response = x.headerOperations(f, field+".responseHeaderModifier")
	return h
}

// mirror adds a mirror. A mirror without an existing backend is left out.
func (x *route) mirror(h *networkingv1alpha3.HTTPRoute, f *gatewayv1.HTTPRequestMirrorFilter, field string) {
	if f == nil {
		return
	}
	to, problem := x.backend(f.BackendRef, field+".requestMirror.backendRef", "requests are not mirrored to it")
	if problem {
		return
	}
	m := &networkingv1alpha3.HTTPMirrorPolicy{Destination: to}
	switch {
	case f.Percent != nil:
		m.Percentage = &networkingv1alpha3.Percent{Value: float64(*f.Percent)}
	case f.Fraction != nil:
		of := 100.0
		if f.Fraction.Denominator != nil {
			of = float64(*f.Fraction.Denominator)
		}
		m.Percentage = &networkingv1alpha3.Percent{Value: 100 * float64(f.Fraction.Numerator) / of}
	}
	h.Mirrors = append(h.Mirrors, m)
}

func (x *route) redirect(h *networkingv1alpha3.HTTPRoute, f *gatewayv1.HTTPRequestRedirectFilter, field string) {
	if f == nil {
		return
	}
	if f.Scheme != nil && *f.Scheme != "http" && *f.Scheme != "https" {
		x.refuse(fmt.Sprintf("unsupported scheme %q", *f.Scheme), field+".scheme", "write http or https")
	}
	if f.StatusCode != nil && !slices.Contains([]int{301, 302, 303, 307, 308}, *f.StatusCode) {
		x.refuse(fmt.Sprintf("unsupported status code %d", *f.StatusCode), field+".statusCode", "write 301, 302, 303, 307 or 308")
	}
	out := &networkingv1alpha3.HTTPRedirect{RedirectCode: 302}
	if f.StatusCode != nil {
		out.RedirectCode = uint32(*f.StatusCode)
	}
	if f.Hostname != nil {
		out.Authority = string(*f.Hostname)
	}
	if f.Scheme != nil {
		out.Scheme = *f.Scheme
	}
	switch {
	case f.Port != nil:
		out.RedirectPort = &networkingv1alpha3.HTTPRedirect_Port{Port: uint32(*f.Port)}
	case f.Hostname != nil && f.Scheme == nil: // without a hostname the request's port stays
		out.RedirectPort = &networkingv1alpha3.HTTPRedirect_DerivePort{DerivePort: networkingv1alpha3.HTTPRedirect_FROM_REQUEST_PORT}
	}
	if p := f.Path; p != nil {
		switch {
		case p.ReplaceFullPath != nil:
			out.Uri = *p.ReplaceFullPath
		case p.ReplacePrefixMatch != nil:
			out.PrefixRewrite = *p.ReplacePrefixMatch
			if out.PrefixRewrite = strings.TrimSuffix(out.PrefixRewrite, "/"); out.PrefixRewrite == "" {
				out.PrefixRewrite = "/"
			}
		}
	}
	h.Redirect = out
}

func rewrite(h *networkingv1alpha3.HTTPRoute, f *gatewayv1.HTTPURLRewriteFilter, prefix string) {
	if f == nil {
		return
	}
	out := &networkingv1alpha3.HTTPRewrite{}
	if f.Hostname != nil {
		out.Authority = string(*f.Hostname)
	}
	if p := f.Path; p != nil {
		switch {
		case p.ReplaceFullPath != nil:
			out.UriRegexRewrite = &networkingv1alpha3.RegexRewrite{Match: "/.*", Rewrite: *p.ReplaceFullPath}
		case p.ReplacePrefixMatch != nil:
			out.Uri = strings.TrimSuffix(*p.ReplacePrefixMatch, "/")
			switch {
			case out.Uri == "" && prefix != "": // avoids a second slash at the place of the prefix
				out.UriRegexRewrite = &networkingv1alpha3.RegexRewrite{Match: "^" + regexp.QuoteMeta(prefix) + "(/?)(.*)", Rewrite: `/\2`}
			case out.Uri == "":
				out.Uri = "/"
			case prefix == "": // the prefix is the slash that begins the rest
				out.Uri += "/"
			}
		}
	}
	h.Rewrite = out
}

func cors(h *networkingv1alpha3.HTTPRoute, f *gatewayv1.HTTPCORSFilter) {
	if f == nil {
		return
	}
	out := &networkingv1alpha3.CorsPolicy{UnmatchedPreflights: networkingv1alpha3.CorsPolicy_IGNORE}
	for _, o := range f.AllowOrigins {
		out.AllowOrigins = append(out.AllowOrigins, origin(string(o)))
	}
	if f.AllowCredentials != nil && *f.AllowCredentials {
		out.AllowCredentials = wrapperspb.Bool(true)
	}
	for _, m := range f.AllowMethods {
		out.AllowMethods = append(out.AllowMethods, string(m))
	}
	for _, n := range f.AllowHeaders {
		out.AllowHeaders = append(out.AllowHeaders, string(n))
	}
	for _, n := range f.ExposeHeaders {
		out.ExposeHeaders = append(out.ExposeHeaders, string(n))
	}
	maxAge := int64(f.MaxAge)
	maxAge = cmp.Or(maxAge, 5)
	out.MaxAge = &durationpb.Duration{Seconds: maxAge}
	h.CorsPolicy = out
}

// origin returns the match of an origin, in which a star may replace the host or its first labels.
func origin(o string) *networkingv1alpha3.StringMatch {
	if o == "*" {
		return regex(`^[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s?#]+$`)
	}
	if strings.Contains(o, "*") {
		return regex("^" + strings.ReplaceAll(regexp.QuoteMeta(o), `\*`, ".*") + "$")
	}
	return exact(o)
}

// grpcRules translates the rules of a GRPCRoute.
func (x *route) grpcRules(rules []gatewayv1.GRPCRouteRule) {
	for i, rule := range rules {
		field := fmt.Sprintf("spec.rules[%d]", i)
		h, supported := &networkingv1alpha3.HTTPRoute{Name: x.ruleName(rule.Name, i)}, true
		for j, f := range rule.Filters {
			at := fmt.Sprintf("%s.filters[%d]", field, j)
			switch {
			case x.headers(&h.Headers, headerFilter{string(f.Type), f.RequestHeaderModifier, f.ResponseHeaderModifier}, at):
			case f.Type == gatewayv1.GRPCRouteFilterRequestMirror:
				x.mirror(h, f.RequestMirror, at)
			default:
				x.unsupportedFilter(string(f.Type), at)
				supported = false
			}
		}
		if rule.SessionPersistence != nil {
			x.found(field+".sessionPersistence", diag.Warning, "use consistentHash of a DestinationRule", "it is not supported: it has no effect")
		}
		var refs []httpBackend
		for _, b := range rule.BackendRefs {
			ref := httpBackend{BackendRef: b.BackendRef}
			for _, f := range b.Filters {
				ref.filters = append(ref.filters, headerFilter{string(f.Type), f.RequestHeaderModifier, f.ResponseHeaderModifier})
			}
			refs = append(refs, ref)
		}
		x.httpBackends(h, refs, field)
		addRule(x, i, h, supported, rule.Matches, x.grpcMatch)
	}
	if len(rules) == 0 {
		h := &networkingv1alpha3.HTTPRoute{Name: x.ruleName(nil, 0)}
		x.httpBackends(h, nil, "spec.rules")
		addRule(x, 0, h, true, nil, x.grpcMatch)
	}
}

// grpcMatch returns a match and its precedence. It returns false if proxies do not accept the match.
func (x *route) grpcMatch(m gatewayv1.GRPCRouteMatch, field string) (out *networkingv1alpha3.HTTPMatchRequest, p precedence, ok bool) {
	out, ok = &networkingv1alpha3.HTTPMatchRequest{}, true
	if m.Method != nil {
		service, method := "", ""
		if m.Method.Service != nil {
			service = *m.Method.Service
		}
		if m.Method.Method != nil {
			method = *m.Method.Method
		}
		path := ""
		if m.Method.Type != nil && *m.Method.Type == gatewayv1.GRPCMethodMatchRegularExpression {
			ok = x.expression(service, field+".method.service") && x.expression(method, field+".method.method")
			path = "/" + alternatives(cmp.Or(service, "[^/]+")) + "/" + alternatives(cmp.Or(method, ".+"))
			out.Uri, p.path = regex(path), pathRegex
		} else {
			switch {
			case service != "" && method != "":
				path = "/" + service + "/" + method
				out.Uri, p.path = exact(path), pathExact
			case service != "":
				path = "/" + service
				out.Uri, p.path = prefixed(path), pathPrefix
			case method != "":
				path = "/[^/]+/" + regexp.QuoteMeta(method)
				out.Uri, p.path = regex(path), pathRegex
			}
		}
		p.length = len(path)
	}
	for i, h := range m.Headers {
		is := h.Type != nil && *h.Type == gatewayv1.GRPCHeaderMatchRegularExpression
		ok = x.matchValue(&out.Headers, string(h.Name), h.Value, is, strings.EqualFold, fmt.Sprintf("%s.headers[%d]", field, i)) && ok
	}
	p.headers = len(out.Headers)
	return out, p, ok
}

// alternatives groups an expression so that it can be a part of another one.
func alternatives(expression string) string {
	if strings.Contains(expression, "|") {
		return "(?:" + expression + ")"
	}
	return expression
}
