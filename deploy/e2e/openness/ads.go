package openness

import (
	"context"
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// Fetch returns what a control plane sends a proxy: clusters, listeners, and the endpoints, routes and extensions that
// they name. The stream ends when all is there.
func Fetch(ctx context.Context, conn *grpc.ClientConn, node *corev3.Node) (trace.Config, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx, grpc.MaxCallRecvMsgSize(1<<30))
	if err != nil {
		return nil, err
	}
	config, open := trace.Config{}, map[string]bool{}
	ask := func(url string, names []string) error {
		open[url] = true
		r := &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: url, ResourceNames: names}
		node = nil
		return stream.Send(r)
	}
	if err := ask(envoy.ClusterType, nil); err != nil {
		return nil, err
	}
	for len(open) > 0 {
		m, err := stream.Recv()
		if err != nil {
			return nil, fmt.Errorf("receive %v: %w", open, err)
		}
		if !open[m.GetTypeUrl()] {
			continue
		}
		delete(open, m.GetTypeUrl())
		var list []*envoy.Resource
		for _, x := range m.GetResources() {
			list = append(list, envoy.RawResource(nameOf(x.GetValue()), x.GetTypeUrl(), x.GetValue()))
		}
		config[m.GetTypeUrl()] = list
		err = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: m.GetTypeUrl(), VersionInfo: m.GetVersionInfo(), ResponseNonce: m.GetNonce()})
		if named := references(m.GetTypeUrl(), list); err == nil {
			for _, url := range []string{envoy.EndpointType, envoy.RouteType, envoy.ExtensionType} {
				if len(named[url]) > 0 {
					err = ask(url, named[url])
				}
			}
		}
		if m.GetTypeUrl() == envoy.ClusterType && err == nil {
			err = ask(envoy.ListenerType, nil)
		}
		if err != nil {
			return nil, err
		}
	}
	return config, nil
}

// nameOf returns the name of a resource, which is field 1 of all types that are fetched.
func nameOf(value []byte) string {
	for len(value) > 0 {
		num, kind, n := protowire.ConsumeTag(value)
		if n < 0 {
			return ""
		}
		if num == 1 && kind == protowire.BytesType {
			name, _ := protowire.ConsumeString(value[n:])
			return name
		}
		m := protowire.ConsumeFieldValue(num, kind, value[n:])
		if m < 0 {
			return ""
		}
		value = value[n+m:]
	}
	return ""
}

// references returns the names of resources, by type, that clusters or listeners name.
func references(url string, list []*envoy.Resource) map[string][]string {
	out := map[string][]string{}
	add := func(url, name string) {
		if name != "" && !slices.Contains(out[url], name) {
			out[url] = append(out[url], name)
		}
	}
	for _, r := range list {
		switch url {
		case envoy.ClusterType:
			c := &clusterv3.Cluster{}
			if proto.Unmarshal(r.Value(), c) == nil && c.GetType() == clusterv3.Cluster_EDS {
				if name := c.GetEdsClusterConfig().GetServiceName(); name != "" {
					add(envoy.EndpointType, name)
				} else {
					add(envoy.EndpointType, c.GetName())
				}
			}
		case envoy.ListenerType:
			l := &listenerv3.Listener{}
			if proto.Unmarshal(r.Value(), l) != nil {
				continue
			}
			for _, chain := range append(slices.Clone(l.GetFilterChains()), l.GetDefaultFilterChain()) {
				for _, f := range chain.GetFilters() {
					if f.GetConfigDiscovery() != nil {
						add(envoy.ExtensionType, f.GetName())
					}
					h := &hcmv3.HttpConnectionManager{}
					if !f.GetTypedConfig().MessageIs(h) || f.GetTypedConfig().UnmarshalTo(h) != nil {
						continue
					}
					add(envoy.RouteType, h.GetRds().GetRouteConfigName())
					for _, f := range h.GetHttpFilters() {
						if f.GetConfigDiscovery() != nil {
							add(envoy.ExtensionType, f.GetName())
						}
					}
				}
			}
		}
	}
	return out
}
