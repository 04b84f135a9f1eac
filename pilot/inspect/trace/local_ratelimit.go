package trace

import (
	"cmp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	tcplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/local_ratelimit/v3"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// httpLocalRateLimit limits requests by buckets of tokens, if it is enabled and enforced for a share of them. The limit
// of the route replaces the filter's own.
func httpLocalRateLimit(x *stream, f filter, m *httplimitv3.LocalRateLimit) bool {
	x.override(f, m)
	on := func(p *corev3.RuntimeFractionalPercent) bool {
		return p.GetRuntimeKey() != "" || share100(p.GetDefaultValue()) > 0
	}
	if m.GetTokenBucket() != nil && on(m.GetFilterEnabled()) && on(m.GetFilterEnforced()) {
		status := cmp.Or(int(m.GetStatus().GetCode()), 429)
		x.dependsOn(accesslog.RateLimit, status, "the local rate limit%s may answer %d", x.of(Origin{Filter: f.name}), status)
	}
	return true
}

// networkLocalRateLimit limits connections.
func networkLocalRateLimit(x *stream, f filter, _ *tcplimitv3.LocalRateLimit) bool {
	x.dependsOn(accesslog.RateLimit, 0, "the local rate limit%s may close the connection", x.of(Origin{Filter: f.name}))
	return true
}
