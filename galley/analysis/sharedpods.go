package analysis

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/protocols"
)

// serviceGroup is a group of Services of one namespace with the same selector, by precedence.
type serviceGroup struct {
	services []*kinds.Object
	targets  []string // names of their target ports
}

// servicesOf returns the groups of Services that select each workload, in the order of their first Services.
func (a *analysis) servicesOf() map[*workload][]*serviceGroup {
	if a.groups != nil {
		return a.groups
	}
	a.groups = map[*workload][]*serviceGroup{}
	bySelector, named := map[selectionKey]*serviceGroup{}, map[*serviceGroup]map[string]bool{}
	for _, o := range a.services {
		spec := &o.Spec.(*corev1.Service).Spec
		if len(spec.Selector) == 0 || spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		key := selectionKey{o.Namespace, written(spec.Selector)}
		g := bySelector[key]
		if g == nil {
			g = &serviceGroup{}
			bySelector[key], named[g] = g, map[string]bool{}
			for w := range a.selected(o.Namespace, spec.Selector) {
				a.groups[w] = append(a.groups[w], g)
			}
		}
		g.services = append(g.services, o)
		for i := range spec.Ports {
			if t := spec.Ports[i].TargetPort; t.Type == intstr.String && !named[g][t.StrVal] {
				named[g][t.StrVal] = true
				g.targets = append(g.targets, t.StrVal)
			}
		}
	}
	return a.groups
}

// targetPort returns the port of a workload that a port of a Service leads to, or 0 if it is unknown.
func targetPort(p *corev1.ServicePort, w *workload) uint32 {
	if p.TargetPort.Type != intstr.String {
		return uint32(cmp.Or(p.TargetPort.IntVal, p.Port)) //nolint:gosec // validated
	}
	if w.pod == nil {
		return 0
	}
	return w.pod.Ports[p.TargetPort.StrVal]
}

// sharedPods reports Services that select the same Pods and disagree on the protocol of a port of theirs: proxies of
// these Pods use one of the protocols. Workloads with the same Services and ports are checked once.
func (a *analysis) sharedPods() {
	type saying struct {
		service  *kinds.Object
		protocol protocols.Protocol
	}
	type clash struct {
		first, second *kinds.Object
		port          uint32
	}
	reported, looked := map[clash]bool{}, map[string]bool{}
	groups := a.servicesOf()
	for _, ns := range a.namespaces {
		for _, w := range a.workloads[ns] {
			alike := likeness(w, groups[w])
			if looked[alike] {
				continue
			}
			looked[alike] = true
			said := map[uint32]saying{}
			for _, g := range groups[w] {
				for _, o := range g.services {
					ports := o.Spec.(*corev1.Service).Spec.Ports
					for i := range ports {
						p := &ports[i]
						number, protocol := targetPort(p, w), protocols.OfPort(p)
						if protocol.Sniffed() {
							protocol = protocols.TCP
						}
						if number == 0 || cmp.Or(p.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP {
							continue
						}
						first, known := said[number]
						if !known {
							said[number] = saying{o, protocol}
							continue
						}
						c := clash{first.service, o, number}
						if first.protocol == protocol || first.service == o || reported[c] {
							continue
						}
						reported[c] = true
						a.report(o, diag.Warning, codeSharedPods, indexed("spec.ports", i), "use one protocol for the port in both",
							"port %d of the Pods has protocol %s here and %s in %s, and both select %s: its proxy takes one of the two",
							number, protocol, first.protocol, first.service, w.object)
					}
				}
			}
		}
	}
}

// likeness returns a key that is the same for workloads with the same groups of Services and the same numbers for the
// named target ports.
func likeness(w *workload, groups []*serviceGroup) string {
	var b strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&b, "%p", g)
		for _, name := range g.targets {
			number := uint32(0)
			if w.pod != nil {
				number = w.pod.Ports[name]
			}
			fmt.Fprintf(&b, ",%d", number)
		}
		b.WriteByte(' ')
	}
	return b.String()
}
