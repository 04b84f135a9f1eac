package trace

import (
	"cmp"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	tcplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ratelimit/v3"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// httpRateLimit asks a rate limit service, if the route or its virtual host names limits of the filter's stage. The
// limits of the virtual host apply too if the route has none, or includes them.
func httpRateLimit(x *stream, f filter, m *httplimitv3.RateLimit) bool {
	limits := m.GetRateLimits()
	own := &httplimitv3.RateLimitPerRoute{}
	if a := x.route.GetRoute(); a != nil {
		limits = slices.Concat(limits, a.GetRateLimits())
		if len(a.GetRateLimits()) == 0 || a.GetIncludeVhRateLimits().GetValue() { //nolint:staticcheck // the field that is sent
			limits = append(limits, x.host.GetRateLimits()...)
		}
		if x.override(f, own) {
			limits = append(limits, own.GetRateLimits()...)
		}
	}
	if slices.ContainsFunc(limits, func(l *routev3.RateLimit) bool { return l.GetStage().GetValue() == m.GetStage() }) {
		status := cmp.Or(int(m.GetRateLimitedStatus().GetCode()), 429)
		x.dependsOn(accesslog.RateLimit, status, "the rate limit%s may answer %d", x.of(Origin{Filter: f.name}), status)
	}
	return true
}

// networkRateLimit asks a rate limit service about a connection.
func networkRateLimit(x *stream, f filter, _ *tcplimitv3.RateLimit) bool {
	x.dependsOn(accesslog.RateLimit, 0, "the rate limit%s may close the connection", x.of(Origin{Filter: f.name}))
	return true
}
