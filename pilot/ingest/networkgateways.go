package ingest

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// hostName is a gateway's, and where it is written.
type hostName struct{ host, object, field, position string }

// checkGateways finds the gateways between networks by which nobody can come in. anew: the mesh's networks may have
// changed.
func (w *World) checkGateways(batch []kinds.Change, anew bool) {
	if anew {
		clear(w.networkGateways)
		batch = nil
		for key, c := range w.objects {
			if (key.Kind == kinds.Service || key.Kind == kinds.KubeGateway) && w.filter.shows(c.object) {
				batch = append(batch, kinds.Change{Key: key, Object: c.object})
			}
		}
	}
	for _, c := range batch {
		switch c.Kind {
		case kinds.Service:
			if delete(w.networkGateways, c.Key); c.Object != nil && len(w.networksOf(c.Object)) > 0 {
				w.networkGateways[c.Key] = c.Object
			}
			anew = true
		case kinds.KubeGateway:
			delete(w.networkGateways, c.Key)
			if c.Object != nil && c.Object.Labels[names.LabelNetwork] != "" && len(c.Object.Spec.(*gatewayv1.Gateway).Spec.Addresses) > 0 {
				w.networkGateways[c.Key] = c.Object
			}
			anew = true
		case kinds.Node: // whose address may be a gateway's
			anew = true
		}
	}
	if !anew {
		return
	}
	var found []diag.Diagnostic
	var written []hostName
	there := w.services.Gateways()
	for key, o := range w.networkGateways {
		if key.Kind == kinds.KubeGateway {
			addresses := o.Spec.(*gatewayv1.Gateway).Spec.Addresses
			for i, a := range addresses {
				if _, err := netip.ParseAddr(a.Value); err != nil && a.Value != "" {
					written = append(written, hostName{a.Value, key.String(), fmt.Sprintf("spec.addresses[%d].value", i), o.Position})
				}
			}
			network := o.Labels[names.LabelNetwork]
			open := slices.ContainsFunc(there, func(g registry.Gateway) bool {
				return g.Network == network && g.Cluster == w.clusterOf(key) && g.Address == addresses[0].Value
			})
			if !open {
				d := diag.Diagnostic{
					Severity: diag.Warning, Code: "GatewayWithoutPort", Object: key.String(), Field: "spec.listeners",
					Message: "no proxy enters network " + network + " by this Gateway: no listener leads into the network",
					Fix:     fmt.Sprintf("add a listener with tls mode Passthrough on port %d, or name the port of one in the label networking.istio.io/gatewayPort", registry.DefaultGatewayPort),
				}
				found = append(found, d.At(o.Position))
			}
			continue
		}
		addresses := kube.ExternalAddresses(o)
		for _, a := range addresses {
			if _, err := netip.ParseAddr(a); err != nil {
				written = append(written, hostName{a, key.String(), "status.loadBalancer", o.Position})
			}
		}
		for _, network := range w.networksOf(o) {
			open := slices.ContainsFunc(there, func(g registry.Gateway) bool {
				return g.Network == network && g.Cluster == w.clusterOf(key) && (kube.ExposedOnNodes(o) || slices.Contains(addresses, g.Address))
			})
			if !open {
				found = append(found, closed(o, network, len(addresses) > 0))
			}
		}
	}
	var networks map[string]*meshv1alpha1.Network
	if w.networks != nil {
		networks = w.networks.GetNetworks()
	}
	for network, n := range networks {
		for i, g := range n.GetGateways() {
			field := fmt.Sprintf("networks.%s.gateways[%d]", network, i)
			if _, err := netip.ParseAddr(g.GetAddress()); err != nil && g.GetAddress() != "" {
				written = append(written, hostName{g.GetAddress(), "MeshNetworks", field + ".address", ""})
			}
			if host := g.GetRegistryServiceName(); host != "" && !w.hasGatewayService(network, host) {
				found = append(found, diag.Diagnostic{
					Severity: diag.Warning, Code: "UnknownGateway", Object: "MeshNetworks", Field: field + ".registryServiceName",
					Message: fmt.Sprintf("no cluster of the network has the Service %s: nobody comes in by this gateway", host),
					Fix:     "create the Service, or name one of a cluster that the network's endpoints name with fromRegistry",
				})
			}
		}
	}
	slices.SortFunc(found, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	slices.SortFunc(written, func(a, b hostName) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.object, b.object), cmp.Compare(a.field, b.field))
	})
	w.mu.Lock()
	w.written = written
	w.mu.Unlock()
	w.found("gateways", found)
}

func (w *World) clusterOf(k kinds.Key) string { return cmp.Or(k.Cluster, w.o.ClusterID) }

func (w *World) hostOf(k kinds.Key) string { return k.Name + "." + k.Namespace + ".svc." + w.o.Domain }

// networksOf returns those that a Service is to lead into: its label's, else those that name it.
func (w *World) networksOf(service *kinds.Object) []string {
	if label := service.Labels[names.LabelNetwork]; label != "" {
		return []string{label}
	}
	var out []string
	for _, g := range w.networks.Services(w.clusterOf(service.Key)) {
		if g.Service == w.hostOf(service.Key) {
			out = append(out, g.Network)
		}
	}
	return slices.Compact(out)
}

// hasGatewayService reports whether a network's own clusters have the Service that it names.
func (w *World) hasGatewayService(network, host string) bool {
	for key := range w.networkGateways {
		if key.Kind != kinds.Service || w.hostOf(key) != host {
			continue
		}
		for _, g := range w.networks.Services(w.clusterOf(key)) {
			if g.Network == network && g.Service == host {
				return true
			}
		}
	}
	return false
}

// closed returns the finding for a Service by which nobody comes into a network.
func closed(service *kinds.Object, network string, reached bool) diag.Diagnostic {
	d := diag.Diagnostic{Severity: diag.Warning, Object: service.Key.String()}
	because := func(code, field, why, fix string) diag.Diagnostic {
		d.Code, d.Field, d.Message, d.Fix = code, field, "nobody comes into network "+network+" by this gateway: "+why, fix
		return d.At(service.Position)
	}
	switch {
	case kube.ExposedOnNodes(service):
		return because("GatewayPending", "metadata.annotations["+kube.AnnotationNodes+"]", "it selects no node with an external address, or its port has no nodePort",
			"select nodes that have an ExternalIP, by their labels, as a JSON object")
	case reached:
		return because("GatewayWithoutPort", "spec.ports", "it does not have the port that it is to be entered by",
			fmt.Sprintf("add port %d, or name one that it has in the label networking.istio.io/gatewayPort", registry.DefaultGatewayPort))
	}
	return because("GatewayPending", "status.loadBalancer", "it has no address yet", "see that its load balancer is given one, or write one to spec.externalIPs")
}

// unresolved returns the gateways whose names cannot be resolved at present.
func (w *World) unresolved() []diag.Diagnostic {
	failing := w.hosts.Failing()
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []diag.Diagnostic
	for _, n := range w.written {
		if why, ok := failing[n.host]; ok {
			d := diag.Diagnostic{
				Severity: diag.Warning, Code: "GatewayUnresolved", Object: n.object, Field: n.field,
				Message: fmt.Sprintf("the name %s of a gateway cannot be resolved: %s; only addresses that it had before stay in use", n.host, why.Why),
				Fix:     "see that the DNS which this server asks has the name; it is tried again",
			}
			out = append(out, d.At(n.position))
		}
	}
	return out
}
