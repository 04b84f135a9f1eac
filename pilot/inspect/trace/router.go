package trace

import (
	"cmp"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// matched is the route of a request. Envoy looks for it before the first filter, because filters read their settings
// there, and again if a filter changes what it depends on. The router acts on it after the last filter.
type matched struct {
	host      *routev3.VirtualHost
	route     *routev3.Route // nil if there is none, or if the virtual host redirects the request
	found     []Step
	on        []string // what the choice of the route depends on
	redirects bool     // whether the virtual host redirects plaintext to HTTPS
}

// match looks for the route of the request.
func (x *stream) match() {
	x.matched = matched{}
	if x.routes == nil {
		return
	}
	host, reason := hostFor(x.routes, x.request.Authority)
	if host == nil {
		return
	}
	x.host = host
	x.found = append(x.found, Step{What: "virtual host", Name: host.GetName(), Reason: reason})
	// TLS is checked before any route, by a header that a trusted proxy may have set.
	proto := cmp.Or(x.request.Headers["x-forwarded-proto"], x.request.scheme())
	if host.GetRequireTls() == routev3.VirtualHost_ALL && proto != "https" {
		x.redirects = true
		return
	}
	var step Step
	x.route, step, x.on = x.routeFor(host)
	x.found = append(x.found, step)
}

// routed records the steps by which the route was found.
func (x *stream) routed() {
	x.step(Step{What: "route configuration", Name: cmp.Or(x.routes.GetName(), "(in the listener)")})
	x.Steps = append(x.Steps, x.found...)
	for _, on := range x.on {
		x.depends("route %s", on)
	}
}

// forward answers the request as its route says, or records where it goes.
func (x *stream) forward() error {
	x.routed()
	switch {
	case x.host == nil:
		x.end(accesslog.NoRoute, 404, "no virtual host of route configuration %s is for %s", x.routes.GetName(), x.request.Authority)
		return nil
	case x.redirects:
		x.Answered = true
		x.end(accesslog.Direct, 301, "virtual host %s redirects plaintext to HTTPS", x.host.GetName())
		return nil
	case x.route == nil:
		x.end(accesslog.NoRoute, 404, "no route of virtual host %s matches", x.host.GetName())
		return nil
	}
	switch action := x.route.GetAction().(type) {
	case *routev3.Route_Redirect:
		x.Answered = true
		x.end(accesslog.Direct, redirectStatus(action.Redirect), "the route redirects")
	case *routev3.Route_DirectResponse:
		x.Answered = true
		x.end(accesslog.Direct, int(action.DirectResponse.GetStatus()), "the route answers by itself")
	case *routev3.Route_Route:
		x.Forwarded = x.forwarded()
		if path := x.Forwarded.Path; path != x.request.Path {
			x.step(Step{What: "path", Name: path, Reason: "that is what " + x.request.Path + " is rewritten to"})
		}
		return x.pass(action.Route)
	case *routev3.Route_NonForwardingAction: // a gRPC server takes the call itself
	default:
		x.end(accesslog.Unknown, 500, "the route has an action of an unknown type")
	}
	return nil
}

// onDemand adds the virtual hosts that are sent by VHDS to their route configuration.
func onDemand(c Config, routes *routev3.RouteConfiguration) error {
	if routes.GetVhds() == nil {
		return nil
	}
	var list []*envoy.Resource
	for _, r := range c[envoy.VirtualHostType] {
		if strings.HasPrefix(r.Name, routes.GetName()+"/") {
			list = append(list, r)
		}
	}
	hosts, err := envoy.Decode[routev3.VirtualHost](list)
	routes.VirtualHosts = append(routes.VirtualHosts, hosts...)
	return err
}

func redirectStatus(r *routev3.RedirectAction) int {
	switch r.GetResponseCode() {
	case routev3.RedirectAction_FOUND:
		return 302
	case routev3.RedirectAction_SEE_OTHER:
		return 303
	case routev3.RedirectAction_TEMPORARY_REDIRECT:
		return 307
	case routev3.RedirectAction_PERMANENT_REDIRECT:
		return 308
	}
	return 301
}
