package analysis

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// matchPorts reports matches of VirtualServices for a port that neither their hosts nor the servers of their Gateways
// have.
func (a *analysis) matchPorts() {
	opened := map[string][]uint32{} // ports of the servers of Gateways
	for _, o := range a.of(kinds.Gateway) {
		name := o.Namespace + "/" + o.Name
		for _, s := range o.Spec.(*networkingv1.Gateway).Servers {
			opened[name] = append(opened[name], s.GetPort().GetNumber())
		}
	}
	for _, o := range a.judged {
		spec := o.Spec.(*networkingv1.VirtualService)
		m := matchCheck{analysis: a, object: o, opened: opened, called: a.calledBySidecars(o)}
		for i, h := range spec.Http {
			checkMatches(&m, indexed("spec.http", i), h.Match, m.called.requests)
		}
		for i, t := range spec.Tls {
			checkMatches(&m, indexed("spec.tls", i), t.Match, m.called.connections)
		}
		for i, t := range spec.Tcp {
			checkMatches(&m, indexed("spec.tcp", i), t.Match, m.called.connections)
		}
	}
}

// checkMatches checks the matches of one route. called has the ports of its protocol that sidecars call.
func checkMatches[M matchAt](m *matchCheck, route string, matches []M, called []uint32) {
	for j, match := range matches {
		m.check(indexed(route+".match", j), match.GetPort(), match.GetGateways(), called)
	}
}

// matchCheck is the check of the matches of one VirtualService.
type matchCheck struct {
	*analysis
	object *kinds.Object
	opened map[string][]uint32
	called calledPorts
}

// check reports a match for a port that none of its gateways has. called has the ports of its protocol that sidecars
// call.
func (m *matchCheck) check(field string, port uint32, gateways []string, called []uint32) {
	if port == 0 {
		return
	}
	if len(gateways) == 0 {
		gateways = m.object.Spec.(*networkingv1.VirtualService).Gateways
	}
	if len(gateways) == 0 {
		gateways = []string{meshGateway}
	}
	var all []uint32
	for _, g := range gateways {
		ports := called
		if g != meshGateway {
			ports = m.opened[names.Gateway(g, m.object.Namespace)]
		} else if !m.called.known {
			return
		}
		if len(ports) == 0 || slices.Contains(ports, port) {
			return // a finding of its own says that there is no port
		}
		all = append(all, ports...)
	}
	m.report(m.object, diag.Warning, codeIneffectiveMatch, field+".port", "use one of "+portsText(all),
		"the match has no effect: neither a host of the VirtualService for sidecars nor a server of its Gateways has port %d", port)
}
