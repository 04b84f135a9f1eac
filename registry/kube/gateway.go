package kube

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/internal/selection"
)

const labelGatewayPort = names.LabelGatewayPort

// AnnotationNodes selects, as JSON, the nodes at whose addresses a gateway of type NodePort is reached.
const AnnotationNodes = names.AnnotationNodeSelector

// OptionListenerMode is an option of a listener's tls. With the value modeAutoPassthrough the listener forwards each
// connection to the service that the server name of the connection names.
const (
	OptionListenerMode  = names.OptionListenerProtocol
	modeAutoPassthrough = "auto-passthrough"
)

// remoteClass is the class of Gateways that only have the address of another network's gateway.
const remoteClass = "istio-remote"

// gateways are the Services and the Gateways of the Gateway API that lead into networks, and the Nodes whose addresses
// some Services need.
type gateways struct {
	services  map[name]*kinds.Object
	resources map[name]*kinds.Object
	nodes     map[string]*kinds.Object
	stale     bool
	list      []registry.Gateway
}

// AutoPassthrough reports whether a listener of an object of the Gateway API with those labels leads into a network: it
// forwards each connection to the service that its server name names.
func AutoPassthrough(labels map[string]string, l *gatewayv1.Listener) bool {
	if l.TLS == nil {
		return false
	}
	if l.TLS.Options[OptionListenerMode] == modeAutoPassthrough {
		return true
	}
	if _, leads := labels[names.LabelNetwork]; !leads {
		return false
	}
	port, named := labels[labelGatewayPort]
	if !named {
		port = strconv.Itoa(registry.DefaultGatewayPort)
	}
	return strconv.Itoa(int(l.Port)) == port
}

// applyGatewayResource applies a change of a Gateway of the Gateway API; nil is a deletion. A remote cluster's own
// Gateways of the class istio-remote are not for this mesh's clusters.
func (r *Registry) applyGatewayResource(n name, o *kinds.Object) {
	if o == nil || o.Labels[names.LabelNetwork] == "" || r.opts.Remote && o.Spec.(*gatewayv1.Gateway).Spec.GatewayClassName == remoteClass {
		o = nil
	}
	r.gateways.put(&r.gateways.resources, n, o)
}

// put puts an object in a map of the gateways. It deletes the name if the object is nil.
func (g *gateways) put(m *map[name]*kinds.Object, n name, o *kinds.Object) {
	if o != nil {
		lists.Put(m, n, o)
		g.stale = true
	} else if _, was := (*m)[n]; was {
		delete(*m, n)
		g.stale = true
	}
}

// resourceGateways returns the addresses that a Gateway of the Gateway API names, with each port that leads into its
// network.
func (r *Registry) resourceGateways(o *kinds.Object) []registry.Gateway {
	spec := &o.Spec.(*gatewayv1.Gateway).Spec
	var out []registry.Gateway
	for _, a := range spec.Addresses {
		if a.Value == "" || a.Type != nil && *a.Type != gatewayv1.IPAddressType && *a.Type != gatewayv1.HostnameAddressType {
			continue
		}
		for i := range spec.Listeners {
			if l := &spec.Listeners[i]; AutoPassthrough(o.Labels, l) {
				out = append(out, registry.Gateway{Network: o.Labels[names.LabelNetwork], Cluster: r.opts.Cluster, Address: a.Value, Port: uint32(l.Port)}) //nolint:gosec // validated
			}
		}
	}
	return out
}

// applyGateway applies a change of a Service; nil is a deletion.
func (r *Registry) applyGateway(n name, o *kinds.Object) {
	if o == nil || o.Labels[names.LabelNetwork] == "" && len(r.opts.Gateways[r.host(n)]) == 0 {
		o = nil
	}
	r.gateways.put(&r.gateways.services, n, o)
}

// applyGatewayNode applies a change of a Node; nil is a deletion.
func (r *Registry) applyGatewayNode(node string, o *kinds.Object) {
	g := &r.gateways
	if o == nil {
		delete(g.nodes, node)
	} else {
		lists.Put(&g.nodes, node, o)
	}
	for _, s := range g.services {
		g.stale = g.stale || s.Annotations[AnnotationNodes] != ""
	}
}

// Gateways returns the addresses at which other networks enter those of this cluster, sorted. The caller must not
// change the slice.
func (r *Registry) Gateways() []registry.Gateway {
	g := &r.gateways
	if !g.stale {
		return g.list
	}
	g.stale, g.list = false, nil
	for n, o := range g.services {
		for _, at := range r.gatewayPorts(n, o) {
			at.Cluster = r.opts.Cluster
			for _, address := range at.addresses {
				at.Address = address
				g.list = append(g.list, at.Gateway)
			}
		}
	}
	for _, o := range g.resources {
		g.list = append(g.list, r.resourceGateways(o)...)
	}
	slices.SortFunc(g.list, registry.CompareGateways)
	g.list = slices.Compact(g.list)
	return g.list
}

// gatewayPort is one port of a gateway, with all addresses at which it is reached.
type gatewayPort struct {
	registry.Gateway
	addresses []string
}

// gatewayPorts returns the ports of a gateway. The Service's label names the network, with a port that the Service has.
// Without a label they are those in the mesh's list of networks.
func (r *Registry) gatewayPorts(n name, o *kinds.Object) []gatewayPort {
	spec := &o.Spec.(*corev1.Service).Spec
	at := func(port uint32) int {
		return slices.IndexFunc(spec.Ports, func(p corev1.ServicePort) bool { return uint32(p.Port) == port })
	}
	named := r.opts.Gateways[r.host(n)]
	if network := o.Labels[names.LabelNetwork]; network != "" {
		port := uint64(registry.DefaultGatewayPort)
		if p, err := strconv.ParseUint(o.Labels[labelGatewayPort], 10, 16); err == nil {
			port = p
		}
		named = []registry.Gateway{{Network: network, Port: uint32(port)}}
		if at(uint32(port)) < 0 {
			return nil
		}
	}
	var out []gatewayPort
	for _, g := range named {
		e := gatewayPort{g, ExternalAddresses(o)}
		if ExposedOnNodes(o) {
			i := at(g.Port)
			if i < 0 || spec.Ports[i].NodePort == 0 {
				continue
			}
			e.Port, e.addresses = uint32(spec.Ports[i].NodePort), r.nodeAddresses(o)
		}
		out = append(out, e)
	}
	return out
}

// ExposedOnNodes reports whether a Service is reached from outside of its cluster at nodes that it selects.
func ExposedOnNodes(o *kinds.Object) bool {
	return o.Spec.(*corev1.Service).Spec.Type == corev1.ServiceTypeNodePort && o.Annotations[AnnotationNodes] != ""
}

// ExternalAddresses returns where a Service is reached from outside of its cluster, other than at nodes: the addresses
// of its load balancer, and its external IPs.
func ExternalAddresses(o *kinds.Object) []string {
	s := o.Spec.(*corev1.Service)
	out := slices.Clone(s.Spec.ExternalIPs)
	for _, in := range s.Status.LoadBalancer.Ingress {
		if a := cmp.Or(in.IP, in.Hostname); a != "" {
			out = append(out, a)
		}
	}
	return out
}

// nodeAddresses returns the external addresses of the nodes that a Service's annotation selects. An invalid selector
// selects none.
func (r *Registry) nodeAddresses(o *kinds.Object) []string {
	var selector map[string]string
	if json.Unmarshal([]byte(o.Annotations[AnnotationNodes]), &selector) != nil {
		return nil
	}
	var out []string
	for _, node := range slices.Sorted(maps.Keys(r.gateways.nodes)) {
		n := r.gateways.nodes[node]
		if !selection.Subset(selector, n.Labels) {
			continue
		}
		for _, a := range n.Spec.(*corev1.Node).Status.Addresses {
			if _, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeExternalIP {
				out = append(out, a.Address)
			}
		}
	}
	return out
}
