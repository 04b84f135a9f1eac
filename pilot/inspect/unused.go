package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
	"github.com/istiod-lite/istiod-lite/registry"
)

// unusedRoutes returns notes about the VirtualServices that have the called host and no effect on the request, with the
// reasons.
func (i *Inspection) unusedRoutes(w *Way, from *sender, s *registry.Service) (notes []string) {
	if !from.proxied || from.Generator == node.GRPC || len(w.Outbound.Steps) == 0 {
		return nil
	}
	gateway := from.Type == node.Router
	host := strings.ToLower(w.Outbound.Forwarded.Host)
	if gateway {
		host = strings.ToLower(w.called)
	} else if s != nil {
		host = s.Host
	}
	used := map[string]bool{}
	winner := ""
	for _, step := range w.Outbound.Steps {
		for _, o := range append(lists.Map(step.Lost, func(l trace.Lost) trace.Origin { return l.Origin }), step.Origin) {
			used[o.Path] = true
			if strings.Contains(o.Path, "/virtual-service/") {
				winner = cmp.Or(winner, i.Origin(o))
			}
		}
	}
	for _, o := range i.objectsOf(kinds.VirtualService) {
		spec := o.Spec.(*networkingv1.VirtualService)
		origin := i.world.Origin(o.Key)
		covers := func(h string) bool {
			return names.Covers(names.FQDN(strings.ToLower(h), o.Namespace, i.o.Domain), host)
		}
		if used[o.Path()] || origin != nil && origin.Key != o.Key || !slices.ContainsFunc(spec.GetHosts(), covers) {
			continue
		}
		if reason := i.unusedReason(w, from, s, o, winner); reason != "" {
			notes = append(notes, fmt.Sprintf("%s has the host %s and no effect here: %s", i.Where(o.Key, ""), host, reason))
		}
	}
	return notes
}

// unusedReason returns why a VirtualService with the called host has no effect, or "" if that is not known.
func (i *Inspection) unusedReason(w *Way, from *sender, s *registry.Service, o *kinds.Object, winner string) string {
	spec := o.Spec.(*networkingv1.VirtualService)
	bound := names.Gateways(spec.GetGateways(), o.Namespace)
	scope, _ := i.translator.Visible(i.Snapshot, from.Proxy)
	exported, imported := scope.Sees(o.Key)
	if from.Type == node.Router {
		own := i.gatewaysOf(from, w.Port)
		switch {
		case !slices.ContainsFunc(bound, func(g string) bool { return slices.Contains(own, g) }) && len(own) > 0:
			return fmt.Sprintf("its gateways are %s, and port %d is of %s", strings.Join(bound, ", "), w.Port, strings.Join(own, ", "))
		case !exported:
			return fmt.Sprintf("its exportTo does not have namespace %s, where the gateway is", from.Namespace)
		case w.Outbound.HTTP && len(spec.GetHttp()) == 0:
			return "it has no http rules, and the gateway reads HTTP"
		case w.Outbound.TCP && len(spec.GetHttp()) > 0 && len(spec.GetTls())+len(spec.GetTcp()) == 0:
			return "it has http rules, and the gateway does not read HTTP at this port"
		case winner != "":
			return "another one wins: " + winner
		}
		return ""
	}
	if !slices.Contains(bound, "mesh") {
		if slices.Contains(spec.GetHosts(), "*") { // all requests of its gateways are meant
			return ""
		}
		return "it is for the gateways " + strings.Join(bound, ", ") + ", and not for sidecars: add the gateway mesh"
	}
	var p *registry.Port
	if s != nil {
		p = s.Port(w.Port)
	}
	switch {
	case !exported:
		return fmt.Sprintf("its exportTo does not have namespace %s", from.Namespace)
	case !imported && scope.Sidecar != nil:
		for _, h := range spec.GetHosts() {
			if field := scope.Exclusion(o.Namespace, names.FQDN(strings.ToLower(h), o.Namespace, i.o.Domain)); field != "" {
				return i.Where(scope.Sidecar.Key, field) + " excludes its host " + h
			}
		}
		return i.Where(scope.Sidecar.Key, "") + " does not import its hosts"
	case s == nil && w.Port != 80:
		return "no service has the host, and sidecars use such a VirtualService at port 80 alone"
	case w.Outbound.HTTP && len(spec.GetHttp()) == 0:
		return "it has no http rules, and the proxy reads HTTP"
	case w.Outbound.TCP && len(spec.GetHttp()) > 0 && len(spec.GetTls())+len(spec.GetTcp()) == 0 && p != nil:
		return fmt.Sprintf("it has http rules, and port %d of %s is %s", p.Number, s.Host, p.Protocol)
	case winner != "":
		return "another one wins: " + winner
	}
	return ""
}

// gatewaysOf returns the Gateways, NAMESPACE/NAME, that have a server for a port of a gateway's proxy.
func (i *Inspection) gatewaysOf(from *sender, port uint32) (list []string) {
	for o := range i.translator.ResolveCohort(i.Snapshot, from.Proxy).Client.Value().Gateways.All {
		if slices.ContainsFunc(o.Spec.(*networkingv1.Gateway).GetServers(), func(s *networkingv1alpha3.Server) bool {
			return s.GetPort().GetNumber() == port
		}) {
			list = append(list, o.Namespace+"/"+o.Name)
		}
	}
	return list
}

// unusedPolicies returns notes about policies for a Gateway of the Gateway API that do not apply to a proxy, although
// the proxy serves the Gateway.
func (i *Inspection) unusedPolicies(p *sender) (notes []string) {
	if p.Type != node.Router {
		return nil
	}
	own := map[kinds.Key]bool{}
	for o := range i.translator.ResolveCohort(i.Snapshot, p.Proxy).Client.Value().Gateways.All {
		if origin := i.world.Origin(o.Key); origin != nil {
			own[origin.Key] = true
		}
	}
	for _, kind := range []*kinds.Kind{kinds.AuthorizationPolicy, kinds.RequestAuthentication} {
		applied := i.translator.Selected(i.Snapshot, p.Proxy, kind)
		for _, o := range i.objectsOf(kind) {
			for _, ref := range feature.Targets(o) {
				target := kinds.Key{Kind: kinds.KubeGateway, Namespace: o.Namespace, Name: ref.GetName()}
				if ref.GetKind() == "Gateway" && own[target] && !slices.ContainsFunc(applied, func(a *kinds.Object) bool { return a.Key == o.Key }) {
					notes = append(notes, fmt.Sprintf("%s has no effect here: it targets %s, and %s does not have the label %s=%s", i.Where(o.Key, ""),
						target, p.Name, names.LabelGateway, ref.GetName()))
				}
			}
		}
	}
	return notes
}

// hiddenBy returns the host of another service to which connections to a service, or to a host of none, go, because it
// has the port without an address of its own. It is empty if a VirtualService leads there, or if there is no such
// service.
func (i *Inspection) hiddenBy(w *Way, s *registry.Service) string {
	if w.Outbound.HTTP || slices.ContainsFunc(w.Outbound.Steps, func(step trace.Step) bool {
		return strings.Contains(step.Origin.Path, "/virtual-service/")
	}) {
		return ""
	}
	for _, t := range w.Outbound.Targets {
		if name, ok := names.ParseCluster(t.Cluster); ok && (s == nil || name.Host != s.Host && s.Resolution != registry.Alias) {
			return name.Host
		}
	}
	return ""
}
