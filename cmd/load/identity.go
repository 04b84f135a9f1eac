package load

import (
	_ "embed"
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// extensionLines are the extensions that an Envoy 1.40 of Istio's build lists, one a line: category, name, type URLs.
//
//go:embed extensions.txt
var extensionLines string

func extensions() []*corev3.Extension {
	var out []*corev3.Extension
	for line := range strings.Lines(extensionLines) {
		parts := strings.Fields(line)
		e := &corev3.Extension{Category: parts[0], Name: parts[1]}
		if len(parts) > 2 {
			e.TypeUrls = strings.Split(parts[2], ",")
		}
		out = append(out, e)
	}
	return out
}

// Identity is the pod that a proxy names as its own.
type Identity struct {
	// Gateway is true for a proxy without an application.
	Gateway bool

	Pod, Namespace, IP string
	// Workload is the name of the pod's owner. ServiceAccount is the account in its certificate.
	Workload, ServiceAccount string
	Labels                   map[string]string
	Node, Region, Zone       string
}

// node returns the node that such a proxy sends.
func (id Identity) node(listed []*corev3.Extension, minor uint32) (*corev3.Node, error) {
	labels := map[string]any{}
	for k, v := range id.Labels {
		labels[k] = v
	}
	facts := map[string]any{
		"NAMESPACE": id.Namespace, "NAME": id.Pod, "CLUSTER_ID": "Kubernetes", "MESH_ID": "cluster.local", "ISTIO_VERSION": "1.31.0",
		"INSTANCE_IPS":    id.IP,
		"SERVICE_ACCOUNT": id.ServiceAccount, "WORKLOAD_NAME": id.Workload, "INTERCEPTION_MODE": "REDIRECT", "APP_CONTAINERS": "app",
		"NODE_NAME": id.Node,
		"OWNER":     "kubernetes://apis/apps/v1/namespaces/" + id.Namespace + "/deployments/" + id.Workload,
		"PILOT_SAN": []any{"istiod.istio-system.svc"},
		"PROXY_CONFIG": map[string]any{"discoveryAddress": "istiod.istio-system.svc:15012", "statusPort": 15020,
			"terminationDrainDuration": "5s"},
		"LABELS": labels,
	}
	kind := "sidecar"
	if id.Gateway {
		kind = "router"
		delete(facts, "INTERCEPTION_MODE")
		delete(facts, "APP_CONTAINERS")
	}
	metadata, err := structpb.NewStruct(facts)
	if err != nil {
		return nil, fmt.Errorf("metadata of pod %s/%s: %w", id.Namespace, id.Pod, err)
	}
	return &corev3.Node{
		Id:      fmt.Sprintf("%s~%s~%s.%s~%s.svc.cluster.local", kind, id.IP, id.Pod, id.Namespace, id.Namespace),
		Cluster: id.Workload + "." + id.Namespace, Metadata: metadata, Locality: &corev3.Locality{Region: id.Region, Zone: id.Zone},
		UserAgentName: "envoy",
		UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{
			UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: minor}},
		},
		Extensions: listed,
	}, nil
}
