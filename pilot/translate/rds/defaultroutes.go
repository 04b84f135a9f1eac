package rds

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// maxDirectResponse is the maximum size in bytes of a response in a route.
const maxDirectResponse = 1 << 20

// defaultRoute returns a route that sends every request for host:port to the cluster. hash and retry are optional.
func defaultRoute(cluster, host string, port uint32, hash []*routev3.RouteAction_HashPolicy, retry *routev3.RetryPolicy) *routev3.Route {
	r := outboundRoute(names.DefaultRoute, cluster)
	r.GetRoute().HashPolicy, r.GetRoute().RetryPolicy = hash, retry
	r.Decorator = &routev3.Decorator{Operation: names.VirtualHost(host, port) + "/*"}
	return r
}

// WorkloadRoute returns a route that sends every incoming request to the workload itself. host and port are the
// service's, empty and 0 for the catch-all. retry is optional.
func WorkloadRoute(cluster, host string, port uint32, retry *routev3.RetryPolicy) *routev3.Route {
	r := forward(names.DefaultRoute, cluster)
	r.GetRoute().Timeout = envoy.Duration(0)
	r.GetRoute().MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: envoy.Duration(0),
		GrpcTimeoutHeaderMax: envoy.Duration(0)}
	r.GetRoute().RetryPolicy = retry
	r.Decorator = &routev3.Decorator{Operation: names.VirtualHost(host, port) + "/*"}
	return r
}

// AllowAny returns the catch-all virtual host of a sidecar that may call hosts without a service. Requests go to their
// original destination, or to the cluster of an egress proxy.
func AllowAny(cluster string, attemptCount bool) *routev3.VirtualHost {
	name := names.AllowAny
	if cluster == names.AllowAnyDynamicDNSCluster {
		name = names.AllowAnyDynamicDNS
	}
	return everyHost(name, outboundRoute(name, cluster), attemptCount)
}

// AllowAnyRoutes returns the route configuration for requests to no service, for use inside a listener.
func AllowAnyRoutes(cluster string, attemptCount bool) *routev3.RouteConfiguration {
	all := AllowAny(cluster, attemptCount)
	return &routev3.RouteConfiguration{
		Name: all.Name, VirtualHosts: []*routev3.VirtualHost{all},
		ValidateClusters: envoy.Bool(false), IgnorePortInHostMatching: true, MaxDirectResponseBodySizeBytes: envoy.UInt32(maxDirectResponse),
	}
}

// blockAll returns the catch-all virtual host of a sidecar that may call services only.
func blockAll(attemptCount bool) *routev3.VirtualHost {
	return everyHost(names.BlockAll, &routev3.Route{
		Name: names.BlockAll, Match: everyRequest(),
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 502}},
	}, attemptCount)
}

func everyHost(name string, r *routev3.Route, attemptCount bool) *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: name, Domains: []string{"*"}, Routes: []*routev3.Route{r}, IncludeRequestAttemptCount: attemptCount}
}

// outboundRoute returns a route for outgoing requests without a timeout.
func outboundRoute(name, cluster string) *routev3.Route {
	r := forward(name, cluster)
	r.GetRoute().Timeout = envoy.Duration(0)
	r.GetRoute().MaxGrpcTimeout = r.GetRoute().Timeout //nolint:staticcheck // max_stream_duration would bound streams too
	return r
}

func everyRequest() *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
}

func forward(name, cluster string) *routev3.Route {
	return &routev3.Route{Name: name, Match: everyRequest(), Action: &routev3.Route_Route{Route: &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
	}}}
}
