package trace

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// service is a service that a filter asks about requests or connections.
type service struct {
	cluster string
	isGRPC  bool
	open    bool // whether requests pass if it does not answer
	status  int  // of the answer to a request if it does not answer; 0 if the connection is closed
}

// clusterOf returns the cluster of a gRPC service, and whether there is a service.
func clusterOf(s *corev3.GrpcService) (name string, isGRPC bool) {
	return s.GetEnvoyGrpc().GetClusterName(), s != nil
}

// mute returns why a service cannot answer, or "" if it may.
func (x *stream) mute(by service) string {
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
	may, _ := speaksHTTP2(cluster)
	switch {
	case !t.serves() && len(t.unready()) > 0:
		return "TLS to cluster " + by.cluster + " fails: " + lacking(t.unready())
	case !t.serves():
		return "cluster " + by.cluster + " has no endpoint that takes requests"
	case by.isGRPC && !may:
		return "it is asked by gRPC, and cluster " + by.cluster + " speaks HTTP/1.1, as its port is not declared as grpc or http2"
	}
	return ""
}
