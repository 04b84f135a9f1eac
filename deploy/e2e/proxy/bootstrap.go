package proxy

import (
	"cmp"
	"net/netip"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/sys/unix"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/agent/bootstrap"
)

// Node is the identity of the proxy.
type Node struct {
	// Type is sidecar or router.
	Type           node.Type
	Addr           netip.Addr
	Name           string
	Namespace      string
	Workload       string
	ServiceAccount string
	NodeName       string
	Labels         map[string]string
	// Interception is REDIRECT or NONE. It is empty for a router.
	Interception node.Interception
	// Cluster is the cluster ID. The default is Kubernetes.
	Cluster string
	// Network is the network of the proxy. View are the networks whose endpoints it asks for; empty means all. Both may be
	// empty.
	Network, View string
}

// Message returns the node as Envoy sends it.
func (n Node) Message() *corev3.Node {
	p := &node.Proxy{
		Type: n.Type, Name: n.Name, Namespace: n.Namespace, Domain: n.Namespace + ".svc.cluster.local", IPs: []string{n.Addr.String()},
		Cluster: cmp.Or(n.Cluster, "Kubernetes"), Network: n.Network, NodeName: n.NodeName, Workload: n.Workload, Account: n.ServiceAccount,
		MeshID: "cluster.local",
		Labels: n.Labels, Interception: n.Interception, Version: "1.31.0", ProxyConfig: true,
	}
	if n.View != "" {
		p.NetworkView = []string{n.View}
	}
	return node.Format(p)
}

// bootstrap returns Envoy's bootstrap configuration, with the address and the protocol of the control plane.
func (o Options) bootstrap() ([]byte, error) {
	b, err := bootstrap.New(bootstrap.Options{Node: o.Node.Message(), ADS: o.XDS, SDS: o.SDS, Admin: o.Admin, StateOfTheWorld: !o.Delta})
	if err != nil {
		return nil, err
	}
	if o.Mark != 0 {
		b.ClusterManager = &bootstrapv3.ClusterManager{UpstreamBindConfig: &corev3.BindConfig{SocketOptions: []*corev3.SocketOption{{
			Description: "mark", Level: unix.SOL_SOCKET, Name: unix.SO_MARK, Value: &corev3.SocketOption_IntValue{IntValue: int64(o.Mark)},
			State: corev3.SocketOption_STATE_PREBIND,
		}}}}
	}
	return bootstrap.JSON(b)
}
