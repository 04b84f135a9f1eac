package grpc

import (
	grpcstatsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// New returns the feature.
func New() *feature.Feature {
	return &feature.Feature{Name: "grpc", Hooks: feature.Hooks{FiltersReadOf: filtersReadOf, HTTPFilters: httpFilters}}
}

func filtersReadOf(c feature.Chain) feature.Chain { return feature.Chain{Protocol: c.Protocol} }

func httpFilters(c feature.Chain) []*hcmv3.HttpFilter {
	var f []*hcmv3.HttpFilter
	if c.Protocol == protocols.GRPCWeb {
		f = append(f, envoy.HTTPFilter("envoy.filters.http.grpc_web", envoy.Any(&grpcwebv3.GrpcWeb{})))
	}
	return append(f, envoy.HTTPFilter("envoy.filters.http.grpc_stats", envoy.Any(&grpcstatsv3.FilterConfig{
		EmitFilterState:        true,
		PerMethodStatSpecifier: &grpcstatsv3.FilterConfig_StatsForAllMethods{StatsForAllMethods: envoy.Bool(false)},
	})))
}
