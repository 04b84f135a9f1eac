package envoyfilter

import (
	"slices"
	"strconv"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// Of returns a function that finds the patches of a Selection that may apply to resources of the type and direction of
// a target, by their names.
func (f *filters) Of(s feature.Selection, of feature.PatchTarget) func(feature.PatchTarget) []feature.Patch {
	var candidates []patch
	for of, p := range f.each(s) {
		candidates = append(candidates, patch{of, p})
	}
	candidates = slices.DeleteFunc(candidates, func(p patch) bool { return !p.concerns(of) })
	return func(t feature.PatchTarget) []feature.Patch {
		var list []feature.Patch
		for _, p := range candidates {
			if p.mayApply(t) {
				list = append(list, p.Patch)
			}
		}
		return list
	}
}

// concerns reports whether a patch is for resources of the type and direction of a target.
func (p *compiledPatch) concerns(t feature.PatchTarget) bool {
	to, adds := p.GetApplyTo(), p.GetPatch().GetOperation() == add
	if !p.inContext(t.Direction) {
		return false
	}
	switch t.Type {
	case envoy.ClusterType:
		return to == toCluster && !adds
	case envoy.ListenerType:
		switch to {
		case toListener:
			return !adds
		case toChain, toNetworkFilter, toHTTPFilter, toListenerFilter:
			return true
		case toRoutes, toHost, toRoute: // inbound routes are part of their listener
			return t.Direction == feature.Inbound
		}
	case envoy.RouteType:
		return to == toRoutes
	case envoy.VirtualHostType:
		return (to == toHost && !adds || to == toRoute) && p.matchesRoutes(t)
	}
	return false
}

// mayApply reports whether a patch that concerns a resource may apply to it, as far as its name shows.
func (p *compiledPatch) mayApply(t feature.PatchTarget) bool {
	switch t.Type {
	case envoy.ClusterType:
		return p.matchesCluster(t)
	case envoy.ListenerType:
		to := p.GetApplyTo()
		return to == toRoutes || to == toHost || to == toRoute || p.mayMatchListener(t.Name)
	case envoy.RouteType:
		return p.matchesRoutes(t)
	case envoy.VirtualHostType:
		return p.mayMatchHost(t.Host)
	}
	return false
}

// Added returns the patches of a Selection that add a resource.
func (f *filters) Added(s feature.Selection, t feature.PatchTarget) []feature.Patch {
	var list []feature.Patch
	for patch, p := range f.each(s) {
		if p.GetPatch().GetOperation() == add && p.adds(t) {
			list = append(list, patch)
		}
	}
	return list
}

// adds reports whether a patch with the operation ADD adds a resource.
func (p *compiledPatch) adds(t feature.PatchTarget) bool {
	switch t.Type {
	case envoy.ClusterType:
		return p.GetApplyTo() == toCluster && p.inContext(t.Direction)
	case envoy.ListenerType:
		return p.GetApplyTo() == toListener && p.inContext(t.Direction)
	case envoy.VirtualHostType:
		return p.GetApplyTo() == toHost && p.inContext(t.Direction) && p.matchesRoutes(t)
	case envoy.ExtensionType: // shared by both directions of a sidecar
		return p.GetApplyTo() == toExtension && (p.inContext(t.Direction) || t.Direction == feature.Outbound && p.inContext(feature.Inbound))
	}
	return false
}

// inContext reports whether a patch is for resources of a direction.
func (p *compiledPatch) inContext(d feature.Direction) bool {
	switch p.GetMatch().GetContext() {
	case networkingv1alpha3.EnvoyFilter_ANY:
		return true
	case networkingv1alpha3.EnvoyFilter_SIDECAR_INBOUND:
		return d == feature.Inbound
	case networkingv1alpha3.EnvoyFilter_SIDECAR_OUTBOUND:
		return d == feature.Outbound
	case networkingv1alpha3.EnvoyFilter_GATEWAY:
		return d == feature.Gateway
	}
	return false
}

// matchesCluster reports whether a patch applies to a cluster.
func (p *compiledPatch) matchesCluster(t feature.PatchTarget) bool {
	m := p.GetMatch().GetCluster()
	if m == nil {
		return true
	}
	if m.Name != "" {
		return m.Name == t.Name
	}
	if m.Service == "" && m.Subset == "" && m.PortNumber == 0 {
		return true
	}
	c, ok := names.ParseCluster(t.Name)
	return ok && (m.Subset == "" || m.Subset == c.Subset) &&
		(m.Service == "" || m.Service == c.Host || t.Direction == feature.Inbound) && // matchesService decides later
		(m.PortNumber == 0 || m.PortNumber == c.Port)
}

// mayMatchListener reports whether a patch may apply to a listener of that name, or to a part of it.
func (p *compiledPatch) mayMatchListener(name string) bool {
	m := p.GetMatch().GetListener()
	if m.GetName() != "" && m.GetName() != name {
		return false
	}
	if m.GetPortNumber() == 0 || name == names.VirtualInbound {
		return true
	}
	i := strings.LastIndexByte(name, '_')
	port, err := strconv.ParseUint(name[i+1:], 10, 32)
	return i < 0 || err != nil || uint32(port) == m.GetPortNumber()
}

// matchesRoutes reports whether a patch applies to a route configuration, or to a part of it.
func (p *compiledPatch) matchesRoutes(t feature.PatchTarget) bool {
	m := p.GetMatch().GetRouteConfiguration()
	if m == nil {
		return true
	}
	if m.Name != "" && m.Name != t.Name {
		return false
	}
	if t.Direction != feature.Gateway {
		return m.PortNumber == 0 || m.PortNumber == routePort(t)
	}
	if m.PortNumber == 0 && m.PortName == "" && m.Gateway == "" {
		return true
	}
	if t.Servers == nil {
		return false
	}
	if n, _ := names.ParseRoute(t.Name); n.Scheme == "http" && (m.PortName != "" || m.Gateway != "") {
		return false // several Gateways' servers may share it
	}
	for _, s := range t.Servers(t.Name) {
		if (m.PortNumber == 0 || m.PortNumber == s.Port) && (m.PortName == "" || m.PortName == s.PortName) &&
			(m.Gateway == "" || m.Gateway == s.Gateway) {
			return true
		}
	}
	return false
}

// routePort returns the port in the name of a sidecar's route configuration, or 0 if there is none.
func routePort(t feature.PatchTarget) uint32 {
	if c, ok := names.ParseCluster(t.Name); ok { // route configuration of an inbound chain
		return c.Port
	}
	n, _ := names.ParseRoute(t.Name)
	return n.Port
}

// mayMatchHost reports whether a patch may apply to a virtual host of that name, or to a part of it.
func (p *compiledPatch) mayMatchHost(name string) bool {
	m := p.GetMatch().GetRouteConfiguration().GetVhost()
	return m.GetName() == "" || m.GetName() == name
}
