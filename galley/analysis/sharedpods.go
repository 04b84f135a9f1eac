package analysis

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// sharedPods reports Services that select the same Pods and disagree on the protocol of a port: proxies of these Pods
// take one of the two.
func (a *analysis) sharedPods() {
	type claim struct {
		service  *kinds.Object
		protocol string
	}
	type clash struct {
		first, second *kinds.Object
		port          int32
	}
	reported := map[clash]bool{}
	services := a.servicesOf()
	for _, ns := range a.namespaces {
		for _, w := range a.workloads[ns] {
			claims := map[int32]claim{}
			for _, o := range services[w] {
				ports := o.Spec.(*corev1.Service).Spec.Ports
				for i := range ports {
					p := &ports[i]
					protocol := cmp.Or(protocolOf(p), "tcp")
					first, known := claims[p.Port]
					if !known {
						claims[p.Port] = claim{o, protocol}
						continue
					}
					c := clash{first.service, o, p.Port}
					if first.protocol == protocol || first.service == o || reported[c] {
						continue
					}
					reported[c] = true
					a.report(o, diag.Warning, codeSharedPods, indexed("spec.ports", i), "use one protocol for the port in both",
						"port %d has protocol %s here and %s in %s, and both select %s: its proxy takes one of the two", p.Port, protocol, first.protocol, first.service, w.object)
				}
			}
		}
	}
}
