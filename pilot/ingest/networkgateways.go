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

// hostName is a host name that an object or the mesh configuration gives for a gateway, and its position.
type hostName struct{ host, object, field, position string }

// checkGateways updates the findings about gateways that clients of other networks cannot use. rebuilt is true if the
// mesh's networks may have changed.
func (w *World) checkGateways(batch []kinds.Change, rebuilt bool) {
	if rebuilt {
		clear(w.networkGateways)
		batch = nil
		for key, c := range w.objects {
			if (key.Kind == kinds.Service || key.Kind == kinds.KubeGateway) && w.filter.accepts(c.object) {
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
			rebuilt = true
		case kinds.KubeGateway:
			delete(w.networkGateways, c.Key)
			if c.Object != nil && c.Object.Labels[names.LabelNetwork] != "" && len(c.Object.Spec.(*gatewayv1.Gateway).Spec.Addresses) > 0 {
				w.networkGateways[c.Key] = c.Object
			}
			rebuilt = true
		case kinds.Node: // its address may be the address of a gateway
			rebuilt = true
		}
	}
	if !rebuilt {
		return
	}
	var found []diag.Diagnostic
	var hostNames []hostName
	there := w.services.Gateways()
	for key, o := range w.networkGateways {
		if key.Kind == kinds.KubeGateway {
			addresses := o.Spec.(*gatewayv1.Gateway).Spec.Addresses
			for i, a := range addresses {
				if _, err := netip.ParseAddr(a.Value); err != nil && a.Value != "" {
					hostNames = append(hostNames, hostName{a.Value, key.String(), fmt.Sprintf("spec.addresses[%d].value", i), o.Position})
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
					Fix: fmt.Sprintf(
						"add a listener with tls mode Passthrough on port %d, or name the port of one in the label networking.istio.io/gatewayPort",
						registry.DefaultGatewayPort,
					),
				}
				found = append(found, d.At(o.Position))
			}
			continue
		}
		addresses := kube.ExternalAddresses(o)
		for _, a := range addresses {
			if _, err := netip.ParseAddr(a); err != nil {
				hostNames = append(hostNames, hostName{a, key.String(), "status.loadBalancer", o.Position})
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
				hostNames = append(hostNames, hostName{g.GetAddress(), "MeshNetworks", field + ".address", ""})
			}
			if host := g.GetRegistryServiceName(); host != "" && !w.hasGatewayService(network, host) {
				found = append(found, diag.Diagnostic{
					Severity: diag.Warning, Code: "UnknownGateway", Object: "MeshNetworks", Field: field + ".registryServiceName",
					Message: fmt.Sprintf("no cluster of the network has the Service %s: clients of other networks cannot use this gateway", host),
					Fix:     "create the Service, or name one of a cluster that the network's endpoints name with fromRegistry",
				})
			}
		}
	}
	slices.SortFunc(found, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	slices.SortFunc(hostNames, func(a, b hostName) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.object, b.object), cmp.Compare(a.field, b.field))
	})
	w.mu.Lock()
	w.gatewayHosts = hostNames
	w.mu.Unlock()
	w.setFindings("gateways", found)
}

func (w *World) clusterOf(k kinds.Key) string { return cmp.Or(k.Cluster, w.o.ClusterID) }

func (w *World) hostOf(k kinds.Key) string { return k.Name + "." + k.Namespace + ".svc." + w.o.Domain }

// networksOf returns the networks that a Service is a gateway of: the network in its label, or else the networks that
// name it.
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

// hasGatewayService reports whether a cluster of the network has the Service that the network names.
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

// closed returns the finding for a gateway Service that clients of other networks cannot use. addressed is true if it
// has an address.
func closed(service *kinds.Object, network string, reached bool) diag.Diagnostic {
	d := diag.Diagnostic{Severity: diag.Warning, Object: service.Key.String()}
	because := func(code, field, why, fix string) diag.Diagnostic {
		d.Code, d.Field, d.Message, d.Fix = code, field, "clients of other networks cannot enter network "+network+" by this gateway: "+why, fix
		return d.At(service.Position)
	}
	switch {
	case kube.ExposedOnNodes(service):
		return because("GatewayPending", "metadata.annotations["+kube.AnnotationNodes+"]",
			"it selects no node with an external address, or its port has no nodePort",
			"select nodes that have an ExternalIP, by their labels, as a JSON object")
	case reached:
		return because("GatewayWithoutPort", "spec.ports", "it does not have the port for traffic between networks",
			fmt.Sprintf("add port %d, or name one that it has in the label networking.istio.io/gatewayPort", registry.DefaultGatewayPort))
	}
	return because(
		"GatewayPending", "status.loadBalancer", "it has no address yet",
		"check that the load balancer controller assigns one, or set spec.externalIPs",
	)
}

// unresolved returns a finding for each gateway whose host name does not resolve, or must not be resolved.
func (w *World) unresolved() []diag.Diagnostic {
	failing := w.hosts.Failing()
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []diag.Diagnostic
	for _, n := range w.gatewayHosts {
		if w.o.NoHostNames {
			d := diag.Diagnostic{
				Severity: diag.Warning, Code: "GatewayUnresolved", Object: n.object, Field: n.field,
				Message: fmt.Sprintf("the gateway is left out: its host name %s is not resolved, because RESOLVE_HOSTNAME_GATEWAYS is false", n.host),
				Fix:     "give the gateway an address, or unset RESOLVE_HOSTNAME_GATEWAYS",
			}
			out = append(out, d.At(n.position))
			continue
		}
		if why, ok := failing[n.host]; ok {
			d := diag.Diagnostic{
				Severity: diag.Warning, Code: "GatewayUnresolved", Object: n.object, Field: n.field,
				Message: fmt.Sprintf("the gateway's host name %s does not resolve: %s; its last known addresses stay in use", n.host, why.Why),
				Fix:     "add the name to the DNS that this server uses; it retries by itself",
			}
			out = append(out, d.At(n.position))
		}
	}
	return out
}
