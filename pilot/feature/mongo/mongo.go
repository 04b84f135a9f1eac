package mongo

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	mongov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/mongo_proxy/v3"

	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// New returns the feature.
func New() *feature.Feature {
	return &feature.Feature{Name: "mongo", Hooks: feature.Hooks{NetworkFilters: networkFilters}}
}

func networkFilters(c feature.Chain) []*listenerv3.Filter {
	if c.HTTP || c.Protocol != protocols.Mongo {
		return nil
	}
	return []*listenerv3.Filter{envoy.NetworkFilter("envoy.filters.network.mongo_proxy",
		envoy.Any(&mongov3.MongoProxy{StatPrefix: c.StatPrefix}))}
}
