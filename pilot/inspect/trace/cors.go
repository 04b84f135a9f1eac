package trace

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// isPreflight reports whether a request is one that browsers send before a request to another origin.
func (r Request) isPreflight() bool {
	return r.Method == "OPTIONS" && r.Headers["origin"] != "" && r.Headers["access-control-request-method"] != ""
}

// cors answers preflights, which browsers send before a request to another origin. Only routes that forward requests
// have policies for it. A setting that a policy does not have comes from the virtual host's.
func cors(x *stream, f filter, _ *corsv3.Cors) bool {
	r := x.request
	origin := r.Headers["origin"]
	if _, forwards := x.route.GetAction().(*routev3.Route_Route); !forwards || origin == "" {
		return true
	}
	var policies []*corsv3.CorsPolicy
	for _, config := range x.perRoute(f.name) {
		if p := (&corsv3.CorsPolicy{}); config.MessageIs(p) && config.UnmarshalTo(p) == nil {
			policies = append(policies, p)
		}
	}
	with := func(has func(*corsv3.CorsPolicy) bool) *corsv3.CorsPolicy {
		if at := slices.IndexFunc(policies, has); at >= 0 {
			return policies[at]
		}
		return &corsv3.CorsPolicy{}
	}
	if len(policies) == 0 {
		return true
	}
	enabled := policies[0].GetFilterEnabled()
	share := share100(enabled.GetDefaultValue())
	if enabled != nil && share == 0 {
		return true
	}
	allowed := with(func(p *corsv3.CorsPolicy) bool { return len(p.GetAllowOriginStringMatch()) > 0 }).GetAllowOriginStringMatch()
	forwards := with(func(p *corsv3.CorsPolicy) bool { return p.GetForwardNotMatchingPreflights() != nil }).GetForwardNotMatchingPreflights()
	s := Step{What: "cors", Name: origin, Reason: "the origin is allowed", Origin: Origin{Path: configOf(x.route.GetMetadata())}}
	isAllowed := false
	for _, m := range allowed {
		isAllowed = isAllowed || m.GetExact() == "*" || matchString(m, origin)
	}
	if !isAllowed {
		s.Reason = "the origin is not allowed: a browser refuses the answer"
	}
	x.step(s)
	switch {
	case !r.isPreflight() || !isAllowed && (forwards == nil || forwards.GetValue()):
		return true
	case enabled != nil && share < 100:
		x.dependsOn(accesslog.Direct, 200, "the CORS policy%s answers %s itself", x.of(s.Origin), percent(enabled.GetDefaultValue()))
		return true
	}
	x.routed()
	x.Answered = true
	x.end(accesslog.Direct, 200, "the proxy answers preflights of CORS itself")
	return false
}
