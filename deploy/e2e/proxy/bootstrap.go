package proxy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Node is who the proxy says it is.
type Node struct {
	// Type is sidecar or router.
	Type           string
	Addr           netip.Addr
	Name           string
	Namespace      string
	Workload       string
	ServiceAccount string
	NodeName       string
	Labels         map[string]string
	// Interception is REDIRECT, NONE or, on a router, empty.
	Interception string
	// Cluster is the ID of the cluster; Kubernetes without it.
	Cluster string
	// Network is the one that the proxy says it is in; View are those whose endpoints it asks for, all if empty. Both may be empty.
	Network, View string
}

// object is a JSON object.
type object = map[string]any

func (n Node) json() object {
	metadata := object{
		"NAMESPACE": n.Namespace, "NAME": n.Name, "CLUSTER_ID": cmp.Or(n.Cluster, "Kubernetes"), "ISTIO_VERSION": "1.31.0", "INSTANCE_IPS": n.Addr.String(),
		"SERVICE_ACCOUNT": n.ServiceAccount, "WORKLOAD_NAME": n.Workload, "MESH_ID": "cluster.local", "NODE_NAME": n.NodeName, "LABELS": n.Labels,
		"PROXY_CONFIG": object{"discoveryAddress": "istiod.istio-system.svc:15012", "proxyAdminPort": 15000, "statusPort": 15020},
	}
	if n.Interception != "" {
		metadata["INTERCEPTION_MODE"] = n.Interception
	}
	if n.Network != "" {
		metadata["NETWORK"] = n.Network
	}
	if n.View != "" {
		metadata["REQUESTED_NETWORK_VIEW"] = n.View
	}
	return object{
		"id":       fmt.Sprintf("%s~%s~%s.%s~%s.svc.cluster.local", n.Type, n.Addr, n.Name, n.Namespace, n.Namespace),
		"cluster":  n.Workload + "." + n.Namespace,
		"metadata": metadata,
	}
}

// bootstrap gives Envoy's configuration before it has any: where the control plane is, and how to ask it.
func (o Options) bootstrap() ([]byte, error) {
	xds, err := netip.ParseAddrPort(o.XDS)
	if err != nil {
		return nil, fmt.Errorf("address of the control plane: %w", err)
	}
	admin, err := netip.ParseAddrPort(o.Admin)
	if err != nil {
		return nil, fmt.Errorf("admin address: %w", err)
	}
	api := "GRPC"
	if o.Delta {
		api = "DELTA_GRPC"
	}
	ads := object{"ads": object{}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
	b := object{
		"node":  o.Node.json(),
		"admin": object{"address": socket(admin), "ignore_global_conn_limit": true},
		"dynamic_resources": object{
			"ads_config": object{
				"api_type": api, "transport_api_version": "V3", "set_node_on_first_message_only": true,
				// Envoy's default waits up to 30 s before it connects again.
				"grpc_services": []any{object{"envoy_grpc": object{
					"cluster_name": "xds-grpc", "retry_policy": object{"retry_back_off": object{"base_interval": "0.1s", "max_interval": "1s"}},
				}}},
			},
			"cds_config": ads,
			"lds_config": ads,
		},
		"static_resources": object{"clusters": []any{grpcCluster("xds-grpc", xds)}},
		// The control plane bounds users' regular expressions; Envoy's own bound of 100 instructions would refuse most.
		"layered_runtime": object{"layers": []any{object{"name": "bounds", "static_layer": object{"re2.max_program_size.error_level": 32768}}}},
		// Without a limit Envoy warns, and that would be all there is in its log.
		"overload_manager": object{"resource_monitors": []any{object{
			"name": "envoy.resource_monitors.global_downstream_max_connections",
			"typed_config": object{
				"@type":                             "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
				"max_active_downstream_connections": 50000,
			},
		}}},
	}
	if o.SDS != "" {
		sds, err := netip.ParseAddrPort(o.SDS)
		if err != nil {
			return nil, fmt.Errorf("address of the certificates: %w", err)
		}
		b["static_resources"] = object{"clusters": []any{grpcCluster("xds-grpc", xds), grpcCluster("sds-grpc", sds)}}
	}
	if o.Mark != 0 {
		b["cluster_manager"] = object{"upstream_bind_config": object{"socket_options": []any{object{
			"description": "mark", "level": unix.SOL_SOCKET, "name": unix.SO_MARK, "int_value": o.Mark, "state": "STATE_PREBIND",
		}}}}
	}
	return json.MarshalIndent(b, "", " ")
}

func grpcCluster(name string, at netip.AddrPort) object {
	return object{
		"name": name, "type": "STATIC", "connect_timeout": "1s",
		"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
			"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config": object{"http2_protocol_options": object{}},
		}},
		"load_assignment": object{"cluster_name": name, "endpoints": []any{object{
			"lb_endpoints": []any{object{"endpoint": object{"address": socket(at)}}},
		}}},
	}
}

func socket(a netip.AddrPort) object {
	return object{"socket_address": object{"address": a.Addr().String(), "port_value": a.Port()}}
}
