package trace

import (
	exthttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	exttcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// httpExtAuthz asks an external authorizer, unless the route disables that.
func httpExtAuthz(x *stream, f filter, m *exthttpv3.ExtAuthz) bool {
	route := &exthttpv3.ExtAuthzPerRoute{}
	if !x.override(f, route) || !route.GetDisabled() {
		x.ask(f, m.GetFilterEnabledMetadata())
	}
	return true
}

// networkExtAuthz asks an external authorizer about a connection.
func networkExtAuthz(x *stream, f filter, m *exttcpv3.ExtAuthz) bool {
	x.ask(f, m.GetFilterEnabledMetadata())
	return true
}

// ask records whether an external authorizer is asked, whose answer is not known. It is asked if the metadata of an
// earlier filter of policies says so, or always if no metadata is named.
func (x *stream) ask(f filter, enabled *matcherv3.MetadataMatcher) {
	if enabled != nil && !x.saidMatches(enabled).possible() {
		x.step(Step{What: "authorization", Name: "CUSTOM", Reason: "no authorizer is asked: no policy matches"})
		return
	}
	origin := Origin{Filter: f.name}
	if path := enabled.GetPath(); len(path) == 1 {
		origin = PolicyOrigin(x.said[path[0].GetKey()].value)
	}
	x.Asked = true
	x.step(Step{What: "authorization", Name: "CUSTOM", Reason: "an authorizer is asked, and may deny it", Origin: origin})
	x.dependsOn(accesslog.Authorizer, 0, "the external authorizer%s may deny it", x.of(origin))
}
