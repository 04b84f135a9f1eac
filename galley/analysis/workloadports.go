package analysis

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	networkingv1 "istio.io/api/networking/v1"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/protocols"
)

// workloadPorts are the ports of the workloads that a policy selects.
type workloadPorts struct {
	own       map[uint32]bool          // ports of the workloads
	ofService map[uint32]servicePorted // first port of a Service with each number
	tcp       *tcpPort                 // first port that is no HTTP; nil if there is none
	tcpOnly   map[uint32]*tcpPort      // ports of the workloads that are TCP; nil for one that a Service gives another protocol
	gateways  []*gatewayGroup          // Gateways of the workloads
	others    bool                     // includes a workload of no Gateway
}

// servicePorted is a port of a Service.
type servicePorted struct {
	service *kinds.Object
	port    *corev1.ServicePort
	targets []string // the workloads' ports that it leads to
	unknown bool     // it leads to a named port of a workload whose number is not known
}

// portsBehind returns the ports of the workloads that a policy of a namespace selects.
func (a *analysis) portsBehind(namespace string, labels map[string]string) *workloadPorts {
	key := selectionKey{namespace, written(labels)}
	if known := a.behind[key]; known != nil {
		return known
	}
	out := &workloadPorts{own: map[uint32]bool{}, tcpOnly: map[uint32]*tcpPort{}, ofService: map[uint32]servicePorted{}}
	if a.behind == nil {
		a.behind = map[selectionKey]*workloadPorts{}
	}
	a.behind[key] = out
	spaces := []string{namespace}
	if namespace == a.root {
		spaces = a.namespaces
	}
	named := map[string]map[uint32]bool{} // ports of the workloads by name
	for _, ns := range spaces {
		for w := range a.selected(ns, labels) {
			out.addGateways(a.groupsOfGateways()[w])
			if w.pod == nil {
				continue
			}
			for _, n := range w.pod.Numbers {
				out.own[n] = true
			}
			for name, n := range w.pod.Ports {
				if named[name] == nil {
					named[name] = map[uint32]bool{}
				}
				named[name][n] = true
			}
		}
	}
	for _, ns := range spaces {
		for _, n := range a.ingressPorts()[ns] {
			out.own[n] = true
		}
	}
	for o := range a.servicesUnder(namespace, labels) {
		spec := &o.Spec.(*corev1.Service).Spec
		for i := range spec.Ports {
			p := &spec.Ports[i]
			if cmp.Or(p.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP {
				continue
			}
			s := servicePorted{service: o, port: p}
			targets := map[uint32]bool{uint32(cmp.Or(p.TargetPort.IntVal, p.Port)): true} //nolint:gosec // validated
			if p.TargetPort.Type == intstr.String {
				targets = named[p.TargetPort.StrVal]
				s.unknown = len(targets) == 0
			}
			protocol := protocols.OfPort(p)
			for _, n := range slices.Sorted(maps.Keys(targets)) {
				if before, known := out.tcpOnly[n]; !protocol.IsTCP() {
					out.tcpOnly[n] = nil
				} else if !known || before != nil {
					out.tcpOnly[n] = &tcpPort{n, o, string(protocol)}
				}
				out.own[n] = true
				s.targets = append(s.targets, strconv.FormatUint(uint64(n), 10))
			}
			number := uint32(p.Port) //nolint:gosec // validated
			if _, known := out.ofService[number]; !known {
				out.ofService[number] = s
			}
			if out.tcp == nil && protocol.IsTCP() && !a.leadsToGateway(o) {
				out.tcp = &tcpPort{number, o, string(protocol)}
			}
		}
	}
	return out
}

// ingressPorts returns the ports of the ingress listeners of Sidecars by namespace.
func (a *analysis) ingressPorts() map[string][]uint32 {
	if a.ingress == nil {
		a.ingress = map[string][]uint32{}
		for _, o := range a.of(kinds.Sidecar) {
			for _, l := range o.Spec.(*networkingv1.Sidecar).Ingress {
				a.ingress[o.Namespace] = append(a.ingress[o.Namespace], l.GetPort().GetNumber())
			}
		}
	}
	return a.ingress
}

// addGateways adds the Gateways of a workload.
func (p *workloadPorts) addGateways(groups []*gatewayGroup) {
	p.others = p.others || len(groups) == 0
	for _, g := range groups {
		if !slices.Contains(p.gateways, g) {
			p.gateways = append(p.gateways, g)
			p.tcp = cmp.Or(p.tcp, g.tcp)
		}
	}
}

// workloadPorts reports ports in policies that only Services have. Proxies compare the port of the workload, to which a
// Service leads.
func (a *analysis) workloadPorts() {
	judge := func(o *kinds.Object, labels map[string]string, field, text, effect string) {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return
		}
		ports := a.portsBehind(o.Namespace, labels)
		s, known := ports.ofService[uint32(n)]
		if !known || s.unknown || ports.own[uint32(n)] {
			return
		}
		a.report(o, diag.Warning, codeServicePort, field, "write "+listed(s.targets),
			"port %d is a port of %s, which leads to port %s of its workloads: %s", n, s.service, listed(s.targets), effect)
	}
	for _, o := range a.of(kinds.PeerAuthentication) {
		spec := o.Spec.(*securityv1.PeerAuthentication)
		if labels := spec.GetSelector().GetMatchLabels(); len(labels) > 0 && o.Namespace != a.root {
			for _, port := range slices.Sorted(maps.Keys(spec.PortLevelMtls)) {
				text := strconv.FormatUint(uint64(port), 10)
				judge(o, labels, "spec.portLevelMtls."+text, text, "the mode is never in force")
			}
		}
	}
	for _, o := range a.of(kinds.AuthorizationPolicy) {
		spec := o.Spec.(*securityv1.AuthorizationPolicy)
		if len(targetsOf(spec)) > 0 {
			continue
		}
		each := func(field string, values []string) {
			for i, v := range values {
				judge(o, spec.GetSelector().GetMatchLabels(), indexed(field, i), v, "nothing matches it")
			}
		}
		for i, r := range spec.Rules {
			rule := indexed("spec.rules", i)
			for j, t := range r.GetTo() {
				each(indexed(rule+".to", j)+".operation.ports", t.GetOperation().GetPorts())
				each(indexed(rule+".to", j)+".operation.notPorts", t.GetOperation().GetNotPorts())
			}
			for j, w := range r.GetWhen() {
				if w.GetKey() == "destination.port" {
					each(indexed(rule+".when", j)+".values", w.GetValues())
					each(indexed(rule+".when", j)+".notValues", w.GetNotValues())
				}
			}
		}
	}
}
