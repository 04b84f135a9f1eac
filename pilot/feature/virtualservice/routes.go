package virtualservice

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// options are the input for the routes of an object.
type options feature.RouteOptions

// virtualServices makes the routes of VirtualServices.
type virtualServices struct{}

// HTTP implements feature.Routes. Routes that can never be reached are left out.
func (virtualServices) HTTP(in feature.RouteOptions) []*routev3.Route {
	o := options(in)
	var out []*routev3.Route
	add := func(h *networkingv1alpha3.HTTPRoute, m *networkingv1alpha3.HTTPMatchRequest, rule, match int) *routev3.Route {
		r := o.route(h, m)
		out = append(out, r)
		if o.Made != nil {
			o.Made[r] = feature.Rule{Object: o.Object.Key, Rule: rule, Match: match}
		}
		return r
	}
	for i, h := range spec(o.Object).GetHttp() {
		if h.GetDelegate() != nil { // the delegate does not exist
			continue
		}
		if len(h.Match) == 0 {
			add(h, nil, i, -1)
			return out
		}
		for j, m := range h.Match {
			if o.applies(m) && catchAll(add(h, m, i, j)) {
				return out
			}
		}
	}
	return out
}

// Any implements feature.Routes.
func (virtualServices) Any(in feature.RouteOptions) bool {
	o := options(in)
	return slices.ContainsFunc(spec(o.Object).GetHttp(), func(h *networkingv1alpha3.HTTPRoute) bool {
		return h.GetDelegate() == nil && (len(h.Match) == 0 || slices.ContainsFunc(h.Match, o.applies))
	})
}

func spec(o *kinds.Object) *networkingv1.VirtualService {
	return o.Spec.(*networkingv1.VirtualService)
}

// catchAll reports whether every request matches a route.
func catchAll(r *routev3.Route) bool {
	m := r.GetMatch()
	return m.GetPrefix() == "/" && len(m.GetHeaders()) == 0 && len(m.GetQueryParameters()) == 0 && len(m.GetDynamicMetadata()) == 0
}

// Join implements feature.Routes, for one host of a gateway. A catch-all route does not hide the more specific routes
// of later VirtualServices. Only the first catch-all route stays.
func (virtualServices) Join(lists ...[]*routev3.Route) []*routev3.Route {
	var out []*routev3.Route
	var last *routev3.Route
	for _, l := range lists {
		for _, r := range l {
			if !catchAll(r) {
				out = append(out, r)
			} else if last == nil {
				last = r
			}
		}
	}
	if last != nil {
		out = append(out, last)
	}
	return out
}

// applies reports whether a match is possible for this port, gateway and proxy.
func (o options) applies(m *networkingv1alpha3.HTTPMatchRequest) bool {
	switch {
	case m == nil:
		return false
	case m.Port != 0 && m.Port != o.Port, m.SourceNamespace != "" && m.SourceNamespace != o.Namespace, o.SourceMatches != nil &&
		!o.SourceMatches(m):
		return false
	}
	return len(m.Gateways) == 0 || slices.ContainsFunc(m.Gateways, func(g string) bool {
		return names.Gateway(g, o.Object.Namespace) == o.Gateway
	})
}

// route returns the route of one match; m is nil for a route without one.
func (o options) route(h *networkingv1alpha3.HTTPRoute, m *networkingv1alpha3.HTTPMatchRequest) *routev3.Route {
	r := &routev3.Route{
		Name:       nameOf(h.Name, m.GetName()),
		StatPrefix: m.GetStatPrefix(),
		Match:      routeMatch(m, o.segments()),
		Metadata:   envoy.IstioMetadata(map[string]*structpb.Value{"config": envoy.Text(o.Object.Path())}),
	}
	authority := o.operations(h.Headers).addTo(r)
	operation := names.VirtualHost(o.Object.Name, o.Port)
	switch {
	case h.Redirect != nil:
		r.Action = o.redirect(h.Redirect)
	case h.DirectResponse != nil:
		r.Action = directResponse(h.DirectResponse)
	case len(h.Route) == 0: // without a destination the next route must not get the matching requests
		r.Action = directResponse(&networkingv1alpha3.HTTPDirectResponse{Status: 500})
	default:
		a := o.action(h, r, authority)
		if c, ok := names.ParseCluster(a.GetCluster()); ok {
			operation = names.VirtualHost(c.Host, c.Port)
		}
		r.Action = &routev3.Route_Route{Route: a}
	}
	r.Decorator = &routev3.Decorator{Operation: operation + pathOf(r.Match)}
	r.TypedPerFilterConfig = perFilterConfig(h)
	return r
}

// segments reports whether prefixes match whole segments of paths.
func (o options) segments() bool {
	return o.Object.RouteExtra().Segments || o.Object.Annotations[kinds.AnnotationRouteSemantics] == kinds.RoutesOfIngress
}

// nameOf returns the name of the route of one match. A match's name follows a dot, even if the rule has no name:
// EnvoyFilters and access logs refer to routes by these names.
func nameOf(rule, match string) string {
	if match == "" {
		return rule
	}
	return rule + "." + match
}

// pathOf returns the path of a match as traces show it.
func pathOf(m *routev3.RouteMatch) string {
	switch p := m.PathSpecifier.(type) {
	case *routev3.RouteMatch_Path:
		return p.Path
	case *routev3.RouteMatch_SafeRegex:
		return p.SafeRegex.GetRegex()
	case *routev3.RouteMatch_Prefix:
		return p.Prefix + "*"
	}
	return "/*"
}

// sorted returns a map's keys in order, because bytes must not depend on the order of a map.
func sorted[V any](m map[string]V) []string {
	keys := slices.Collect(maps.Keys(m))
	slices.SortFunc(keys, cmp.Compare[string])
	return keys
}

func number(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil
}
