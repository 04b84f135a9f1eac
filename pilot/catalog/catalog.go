package catalog

import (
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/authz"
	"github.com/istiod-lite/istiod-lite/pilot/feature/grpc"
	"github.com/istiod-lite/istiod-lite/pilot/feature/mongo"
	"github.com/istiod-lite/istiod-lite/pilot/feature/mtls"
	"github.com/istiod-lite/istiod-lite/pilot/feature/peermetadata"
	"github.com/istiod-lite/istiod-lite/pilot/feature/telemetry"
	"github.com/istiod-lite/istiod-lite/pilot/feature/virtualservice"
)

// Features returns all features in order.
func Features() []*feature.Feature {
	return []*feature.Feature{
		peermetadata.New(),
		authz.New(),
		grpc.New(),
		mtls.New(),
		virtualservice.New(),
		telemetry.New(),
		mongo.New(),
	}
}
