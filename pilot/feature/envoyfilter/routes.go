package envoyfilter

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
)

// routes applies patches to virtual hosts and their routes.
type routes struct {
	list []patch
	out  outcome
}

// host applies all patches to a virtual host, and reports whether it stays.
func (r routes) host(h *routev3.VirtualHost) bool {
	return r.hostIf(h, func(patch) bool { return true })
}

// hostIf applies the patches for which applies reports true.
func (r routes) hostIf(h *routev3.VirtualHost, applies func(patch) bool) bool {
	matches := func(p patch, to networkingv1alpha3.EnvoyFilter_ApplyTo) bool {
		domain := p.GetMatch().GetRouteConfiguration().GetVhost().GetDomainName()
		return p.GetApplyTo() == to && applies(p) && (domain == "" || slices.Contains(h.Domains, domain))
	}
	for i, p := range r.list {
		if !matches(p, toHost) || p.op() == add {
			continue
		}
		if p.op() == remove {
			r.out.set(i, nil)
			return false
		}
		name := h.Name
		r.out.set(i, p.mergeInto(h))
		h.Name = name
	}
	for i, p := range r.list {
		if !matches(p, toRoute) {
			continue
		}
		if p.op() == remove {
			before := len(h.Routes)
			if h.Routes = slices.DeleteFunc(h.Routes, p.matchesRoute); len(h.Routes) < before {
				r.out.set(i, nil)
			}
		}
		for _, route := range h.Routes {
			if merges(p.op()) && p.matchesRoute(route) {
				r.out.set(i, p.mergeInto(route))
			}
		}
	}
	for i, p := range r.list {
		if matches(p, toRoute) && r.insert(h, p) {
			r.out.set(i, nil)
		}
	}
	return true
}

// insert adds the route of a patch to a virtual host, and reports whether there is a position for it.
func (r routes) insert(h *routev3.VirtualHost, p patch) bool {
	at := slices.IndexFunc(h.Routes, p.matchesRoute)
	any := p.GetMatch().GetRouteConfiguration().GetVhost().GetRoute() == nil
	switch p.op() {
	case add:
		at = len(h.Routes)
	case insertFirst:
		if at >= 0 || any {
			at = 0
		}
	case insertBefore:
		if any {
			at = 0
		}
	case insertAfter:
		if any {
			at = len(h.Routes)
		} else if at >= 0 {
			at++
		}
	default:
		return false
	}
	if at >= 0 {
		h.Routes = slices.Insert(h.Routes, at, proto.Clone(p.value).(*routev3.Route))
	}
	return at >= 0
}

// added returns the virtual host that a patch adds.
func (r routes) added(p patch) *routev3.VirtualHost {
	return proto.Clone(p.value).(*routev3.VirtualHost)
}

// matchesRoute reports whether a patch is for a route.
func (p patch) matchesRoute(r *routev3.Route) bool {
	m := p.GetMatch().GetRouteConfiguration().GetVhost().GetRoute()
	if m.GetName() != "" && m.GetName() != r.Name {
		return false
	}
	switch m.GetAction() {
	case networkingv1alpha3.EnvoyFilter_RouteConfigurationMatch_RouteMatch_ROUTE:
		return r.GetRoute() != nil
	case networkingv1alpha3.EnvoyFilter_RouteConfigurationMatch_RouteMatch_REDIRECT:
		return r.GetRedirect() != nil
	case networkingv1alpha3.EnvoyFilter_RouteConfigurationMatch_RouteMatch_DIRECT_RESPONSE:
		return r.GetDirectResponse() != nil
	}
	return true
}
