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

// AnnotationNodes selects, as JSON, the nodes whose addresses are the addresses of a gateway of type NodePort.
const AnnotationNodes = names.AnnotationNodeSelector

// OptionListenerMode is an option of a listener's tls. With the value modeAutoPassthrough the listener forwards each
// connection to the service that its server name (SNI) names.
const (
	OptionListenerMode  = names.OptionListenerProtocol
	modeAutoPassthrough = "auto-passthrough"
)

// remoteClass is the class of Gateways that only have the address of another network's gateway.
const remoteClass = "istio-remote"

// gateways are the Services and Gateway API Gateways that lead into networks, and the Nodes whose addresses some
// Services need.
type gateways struct {
	services  map[name]*kinds.Object
	resources map[name]*kinds.Object
	nodes     map[string]*kinds.Object
	stale     bool
	list      []registry.Gateway
}

// AutoPassthrough reports whether a listener of a Gateway API object with those labels leads into a network: it
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

// applyGatewayResource applies a change of a Gateway API Gateway; nil deletes it. It ignores Gateways of the class
// istio-remote in remote clusters, which are meant for that cluster's own mesh.
func (r *Registry) applyGatewayResource(n name, o *kinds.Object) {
	if o == nil || o.Labels[names.LabelNetwork] == "" || r.opts.Remote && o.Spec.(*gatewayv1.Gateway).Spec.GatewayClassName == remoteClass {
		o = nil
	}
	r.gateways.put(&r.gateways.resources, n, o)
}

// put stores an object in a map of the gateways, or deletes the name if the object is nil.
func (g *gateways) put(m *map[name]*kinds.Object, n name, o *kinds.Object) {
	if o != nil {
		lists.Put(m, n, o)
		g.stale = true
	} else if _, was := (*m)[n]; was {
		delete(*m, n)
		g.stale = true
	}
}

// resourceGateways returns the addresses in a Gateway API Gateway, with each port that leads into its network.
func (r *Registry) resourceGateways(o *kinds.Object) []registry.Gateway {
	spec := &o.Spec.(*gatewayv1.Gateway).Spec
	var out []registry.Gateway
	for _, a := range spec.Addresses {
		if a.Value == "" || a.Type != nil && *a.Type != gatewayv1.IPAddressType && *a.Type != gatewayv1.HostnameAddressType {
			continue
		}
		for i := range spec.Listeners {
			if l := &spec.Listeners[i]; AutoPassthrough(o.Labels, l) {
				out = append(out, registry.Gateway{
					Network: o.Labels[names.LabelNetwork], Cluster: r.opts.Cluster, Address: a.Value,
					Port: uint32(l.Port), //nolint:gosec // validated to be a port
				})
			}
		}
	}
	return out
}

// applyGateway applies a change of a Service; nil deletes it.
func (r *Registry) applyGateway(n name, o *kinds.Object) {
	if o == nil || o.Labels[names.LabelNetwork] == "" && len(r.opts.Gateways[r.host(n)]) == 0 {
		o = nil
	}
	r.gateways.put(&r.gateways.services, n, o)
}

// applyGatewayNode applies a change of a Node; nil deletes it.
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

// Gateways returns the addresses at which other networks enter the networks of this cluster, sorted. The caller must
// not change the slice.
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

// gatewayPort is one port of a gateway, with all its addresses.
type gatewayPort struct {
	registry.Gateway
	addresses []string
}

// gatewayPorts returns the ports of a gateway. If the Service has a label, it names the network, and the Service has
// the port. Otherwise the mesh's list of networks has both.
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

// ExposedOnNodes reports whether a Service selects nodes at which clients outside of its cluster reach it.
func ExposedOnNodes(o *kinds.Object) bool {
	return o.Spec.(*corev1.Service).Spec.Type == corev1.ServiceTypeNodePort && o.Annotations[AnnotationNodes] != ""
}

// ExternalAddresses returns the external addresses of a Service, other than nodes: the addresses of its load balancer,
// and its external IPs.
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
