package trace

import (
	"cmp"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	exthttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	exttcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// httpExtAuthz asks an external authorizer, unless the route disables that.
func httpExtAuthz(x *stream, f filter, m *exthttpv3.ExtAuthz) bool {
	route := &exthttpv3.ExtAuthzPerRoute{}
	if x.override(f, route) && route.GetDisabled() {
		return true
	}
	cluster, isGRPC := clusterOf(m.GetGrpcService())
	if !isGRPC {
		cluster = m.GetHttpService().GetServerUri().GetCluster()
	}
	return x.ask(f, m.GetFilterEnabledMetadata(), authorizer{cluster, isGRPC, m.GetFailureModeAllow(),
		cmp.Or(int(m.GetStatusOnError().GetCode()), 403)})
}

// networkExtAuthz asks an external authorizer about a connection.
func networkExtAuthz(x *stream, f filter, m *exttcpv3.ExtAuthz) bool {
	cluster, isGRPC := clusterOf(m.GetGrpcService())
	return x.ask(f, m.GetFilterEnabledMetadata(), authorizer{cluster, isGRPC, m.GetFailureModeAllow(), 0})
}

// clusterOf returns the cluster of a gRPC service, and whether there is a service.
func clusterOf(s *corev3.GrpcService) (name string, isGRPC bool) {
	return s.GetEnvoyGrpc().GetClusterName(), s != nil
}

// authorizer is a service that decides about requests.
type authorizer struct {
	cluster string
	isGRPC  bool
	open    bool // whether requests pass if it does not answer
	status  int  // of the answer to a request if it does not answer; 0 if the connection is closed
}

// ask reports whether a request passes an external authorizer, whose answer is not known. It is asked if the metadata
// of an earlier filter of policies says so, or always if no metadata is named.
func (x *stream) ask(f filter, enabled *matcherv3.MetadataMatcher, by authorizer) bool {
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

// mute returns why an authorizer cannot answer, or "" if it may.
func (x *stream) mute(by authorizer) string {
	if by.cluster == "" { // it is not named by a cluster
		return ""
	}
	cluster, err := named[clusterv3.Cluster](x.config[envoy.ClusterType], by.cluster)
	if err != nil {
		return ""
	}
	if cluster == nil {
		return "cluster " + by.cluster + " is not there"
	}
	t := Target{Cluster: by.cluster}
	if _, err := t.fill(x.config, cluster, offer{}); err != nil {
		return ""
	}
	switch {
	case !t.serves() && len(t.unready()) > 0:
		return "TLS to cluster " + by.cluster + " fails: " + lacking(t.unready())
	case !t.serves():
		return "cluster " + by.cluster + " has no endpoint that takes requests"
	case by.isGRPC && !speaksHTTP2(cluster):
		return "it is asked by gRPC, and cluster " + by.cluster + " speaks HTTP/1.1, as its port is not declared as grpc or http2"
	}
	return ""
}
