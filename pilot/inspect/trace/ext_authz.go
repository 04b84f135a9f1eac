package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	exthttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	exttcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// httpExtAuthz asks an external authorizer, unless the route disables that.
func httpExtAuthz(x *stream, f filter, m *exthttpv3.ExtAuthz) bool {
	route := &exthttpv3.ExtAuthzPerRoute{}
	if x.override(f, route) && route.GetDisabled() {
		return true
	}
	x.mayAdd(m)
	cluster, isGRPC := clusterOf(m.GetGrpcService())
	if !isGRPC {
		cluster = m.GetHttpService().GetServerUri().GetCluster()
	}
	return x.ask(f, m.GetFilterEnabledMetadata(), service{cluster, isGRPC, m.GetFailureModeAllow(),
		cmp.Or(int(m.GetStatusOnError().GetCode()), 403)})
}

// mayAdd records the headers that an authorizer may add to requests that it allows. One that is asked by gRPC may add
// any: the token is the one that matters most.
func (x *stream) mayAdd(m *exthttpv3.ExtAuthz) {
	const by = ", which the external authorizer may set"
	allowed := m.GetHttpService().GetAuthorizationResponse()
	patterns := slices.Concat(allowed.GetAllowedUpstreamHeaders().GetPatterns(), allowed.GetAllowedUpstreamHeadersToAppend().GetPatterns())
	names := lists.Map(patterns, func(p *matcherv3.StringMatcher) string { return strings.ToLower(p.GetExact()) })
	if m.GetGrpcService() != nil {
		names = append(names, "authorization")
	}
	for _, name := range names {
		x.request.blur(name, "the value of header "+name+by)
	}
}

// networkExtAuthz asks an external authorizer about a connection.
func networkExtAuthz(x *stream, f filter, m *exttcpv3.ExtAuthz) bool {
	cluster, isGRPC := clusterOf(m.GetGrpcService())
	return x.ask(f, m.GetFilterEnabledMetadata(), service{cluster, isGRPC, m.GetFailureModeAllow(), 0})
}

// ask reports whether a request passes an external authorizer, whose answer is not known. It is asked if the metadata
// of an earlier filter of policies says so, or always if no metadata is named.
func (x *stream) ask(f filter, enabled *matcherv3.MetadataMatcher, by service) bool {
	asked := known(true)
	if enabled != nil {
		asked = x.saidMatches(enabled)
	}
	if !asked.possible() {
		x.step(Step{What: "authorization", Name: "CUSTOM", Reason: "no authorizer is asked: no policy matches"})
		return true
	}
	origin := Origin{Filter: f.name}
	if path := enabled.GetPath(); len(path) == 1 {
		origin = PolicyOrigin(x.said[path[0].GetKey()].value)
	}
	x.Asked = true
	if mute := x.mute(by); mute != "" {
		reason := fmt.Sprintf("the external authorizer%s cannot answer: %s", x.of(origin), mute)
		x.step(Step{What: "authorization", Name: "CUSTOM", Reason: reason, Origin: origin})
		switch {
		case by.open:
		case !asked.certain():
			x.dependsOn(accesslog.Authorizer, by.status, "%s. Whether it is asked depends on %s", reason, asked.text())
		default:
			x.end(accesslog.Authorizer, by.status, "%s", reason)
			return false
		}
		return true
	}
	x.step(Step{What: "authorization", Name: "CUSTOM", Reason: "an authorizer is asked, and may deny it", Origin: origin})
	x.dependsOn(accesslog.Authorizer, 0, "the external authorizer%s may deny it", x.of(origin))
	return true
}
