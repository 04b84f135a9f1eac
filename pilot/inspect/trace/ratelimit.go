package trace

import (
	"cmp"
	"fmt"
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
		cluster, isGRPC := clusterOf(m.GetRateLimitService().GetGrpcService())
		x.limit(f, service{cluster, isGRPC, !m.GetFailureModeDeny(), cmp.Or(int(m.GetStatusOnError().GetCode()), 500)},
			cmp.Or(int(m.GetRateLimitedStatus().GetCode()), 429))
	}
	return true
}

// limit records that a rate limit service is asked, and may refuse the request with a status. It is not asked if the
// request has nothing of what the limits count.
func (x *stream) limit(f filter, by service, status int) {
	of := x.of(Origin{Filter: f.name})
	fate := func(status int) string {
		if status == 0 {
			return "may close the connection"
		}
		return fmt.Sprintf("may answer %d", status)
	}
	switch mute := x.mute(by); {
	case mute == "":
		x.dependsOn(accesslog.RateLimit, status, "the rate limit%s %s", of, fate(status))
	case !by.open:
		x.dependsOn(accesslog.RateLimit, by.status, "the rate limit%s %s: its service cannot answer, as %s", of, fate(by.status), mute)
	}
}

// networkRateLimit asks a rate limit service about a connection.
func networkRateLimit(x *stream, f filter, m *tcplimitv3.RateLimit) bool {
	cluster, isGRPC := clusterOf(m.GetRateLimitService().GetGrpcService())
	x.limit(f, service{cluster, isGRPC, !m.GetFailureModeDeny(), 0}, 0)
	return true
}
