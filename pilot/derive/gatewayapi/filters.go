package gatewayapi

import (
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// httpFilters sets what the filters of a rule do. prefix is what its matches say of the path's beginning.
func (x *route) httpFilters(h *networkingv1alpha3.HTTPRoute, filters []gatewayv1.HTTPRouteFilter, field, prefix string) {
	for i, f := range filters {
		at := fmt.Sprintf("%s.filters[%d]", field, i)
		switch f.Type {
		case gatewayv1.HTTPRouteFilterRequestHeaderModifier:
			h.Headers = withRequest(h.Headers, f.RequestHeaderModifier)
		case gatewayv1.HTTPRouteFilterResponseHeaderModifier:
			h.Headers = withResponse(h.Headers, f.ResponseHeaderModifier)
		case gatewayv1.HTTPRouteFilterRequestMirror:
			x.mirror(h, f.RequestMirror, at)
		case gatewayv1.HTTPRouteFilterRequestRedirect:
			redirect(h, f.RequestRedirect)
		case gatewayv1.HTTPRouteFilterURLRewrite:
			rewrite(h, f.URLRewrite, prefix)
		case gatewayv1.HTTPRouteFilterCORS:
			cors(h, f.CORS)
		default:
			x.unsupportedFilter(string(f.Type), at)
		}
	}
}

func headerOperations(f *gatewayv1.HTTPHeaderFilter) *networkingv1alpha3.Headers_HeaderOperations {
	if f == nil {
		return nil
	}
	out := &networkingv1alpha3.Headers_HeaderOperations{Remove: f.Remove}
	for _, h := range f.Set {
		if out.Set == nil {
			out.Set = map[string]string{}
		}
		out.Set[strings.ToLower(string(h.Name))] = h.Value
	}
	for _, h := range f.Add {
		if out.Add == nil {
			out.Add = map[string]string{}
		}
		out.Add[strings.ToLower(string(h.Name))] = h.Value
	}
	return out
}

func withRequest(h *networkingv1alpha3.Headers, f *gatewayv1.HTTPHeaderFilter) *networkingv1alpha3.Headers {
	if h == nil {
		h = &networkingv1alpha3.Headers{}
	}
	h.Request = headerOperations(f)
	return h
}

func withResponse(h *networkingv1alpha3.Headers, f *gatewayv1.HTTPHeaderFilter) *networkingv1alpha3.Headers {
	if h == nil {
		h = &networkingv1alpha3.Headers{}
	}
	h.Response = headerOperations(f)
	return h
}

// mirror adds a mirror. One that leads nowhere is left out.
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

func redirect(h *networkingv1alpha3.HTTPRoute, f *gatewayv1.HTTPRequestRedirectFilter) {
	if f == nil {
		return
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
	case f.Hostname != nil && f.Scheme == nil: // without a hostname the port stays that of the request
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
			case out.Uri == "" && prefix != "": // no second slash where the prefix was
				out.UriRegexRewrite = &networkingv1alpha3.RegexRewrite{Match: "^" + regexp.QuoteMeta(prefix) + "(/?)(.*)", Rewrite: `/\2`}
			case out.Uri == "":
				out.Uri = "/"
			case prefix == "": // the slash that is the prefix is a part of what follows
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
	if maxAge == 0 {
		maxAge = 5
	}
	out.MaxAge = &durationpb.Duration{Seconds: maxAge}
	h.CorsPolicy = out
}

// origin returns the match of an origin, which may have a star in the place of the host, or of its first labels.
func origin(o string) *networkingv1alpha3.StringMatch {
	if o == "*" {
		return regex(`^[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s?#]+$`)
	}
	if strings.Contains(o, "*") {
		return regex("^" + strings.ReplaceAll(regexp.QuoteMeta(o), `\*`, ".*") + "$")
	}
	return exact(o)
}

// grpcRules takes in the rules of a GRPCRoute.
func (x *route) grpcRules(rules []gatewayv1.GRPCRouteRule) {
	for i, rule := range rules {
		field := fmt.Sprintf("spec.rules[%d]", i)
		h := &networkingv1alpha3.HTTPRoute{Name: x.ruleName(rule.Name, i)}
		for j, f := range rule.Filters {
			at := fmt.Sprintf("%s.filters[%d]", field, j)
			switch f.Type {
			case gatewayv1.GRPCRouteFilterRequestHeaderModifier:
				h.Headers = withRequest(h.Headers, f.RequestHeaderModifier)
			case gatewayv1.GRPCRouteFilterResponseHeaderModifier:
				h.Headers = withResponse(h.Headers, f.ResponseHeaderModifier)
			case gatewayv1.GRPCRouteFilterRequestMirror:
				x.mirror(h, f.RequestMirror, at)
			default:
				x.unsupportedFilter(string(f.Type), at)
			}
		}
		if rule.SessionPersistence != nil {
			x.found(field+".sessionPersistence", diag.Warning, "use consistentHash of a DestinationRule", "it is not supported: it has no effect")
		}
		var refs []httpBackend
		for _, b := range rule.BackendRefs {
			refs = append(refs, httpBackend{b.BackendRef, nil, b.Filters})
		}
		x.httpBackends(h, refs, field)
		matches := rule.Matches
		if len(matches) == 0 {
			matches = []gatewayv1.GRPCRouteMatch{{}}
		}
		for _, m := range matches {
			match, p := grpcMatch(m)
			x.addHTTP(h, match, p)
		}
	}
	if len(rules) == 0 {
		h := &networkingv1alpha3.HTTPRoute{Name: x.ruleName(nil, 0)}
		x.httpBackends(h, nil, "spec.rules")
		match, p := grpcMatch(gatewayv1.GRPCRouteMatch{})
		x.addHTTP(h, match, p)
	}
}

// grpcMatch returns a match, and what decides its precedence.
func grpcMatch(m gatewayv1.GRPCRouteMatch) (*networkingv1alpha3.HTTPMatchRequest, precedence) {
	out, p := &networkingv1alpha3.HTTPMatchRequest{}, precedence{}
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
			if service == "" {
				service = "[^/]+"
			}
			if method == "" {
				method = ".+"
			}
			path = "/" + service + "/" + method
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
	for _, h := range m.Headers {
		match := exact(h.Value)
		if h.Type != nil && *h.Type == gatewayv1.GRPCHeaderMatchRegularExpression {
			match = regex(h.Value)
		}
		if out.Headers == nil {
			out.Headers = map[string]*networkingv1alpha3.StringMatch{}
		}
		if _, twice := out.Headers[string(h.Name)]; !twice {
			out.Headers[string(h.Name)] = match
			p.headers++
		}
	}
	return out, p
}
