package analysis

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// endpoints reports a Service without a selector and without endpoints, and why a Service with a matching selector has
// no endpoints. It does nothing for a running cluster, where Pods get addresses and Services get EndpointSlices later.
func (a *analysis) endpoints(o *kinds.Object) {
	spec := &o.Spec.(*corev1.Service).Spec
	if !a.options.Whole && !a.options.Still || spec.Type == corev1.ServiceTypeExternalName || len(a.slices[o.Namespace+"/"+o.Name]) > 0 {
		return
	}
	const effect = "it has no endpoints, and requests to it get 503"
	if len(spec.Selector) == 0 {
		if a.options.Whole {
			a.report(o, diag.Warning, codeEndpoints, "spec",
				"add a selector, or an EndpointSlice with the label kubernetes.io/service-name: "+o.Name,
				"the Service has no selector, and there is no EndpointSlice of it: %s", effect)
		}
		return
	}
	pods := a.selection(o.Namespace, spec.Selector)
	const fix = "write status.podIP into them"
	switch {
	case pods.addressless != "" && (pods.machine || pods.addresses > 0):
		a.report(o, diag.Warning, codeEndpoints, "spec.selector", fix,
			"of the Pods that the Service selects some have no IP address and are no endpoints (%s)", pods.addressless)
	case pods.machine || pods.workloads == 0 || pods.ready > 0 || pods.addresses > 0 && spec.PublishNotReadyAddresses:
	case pods.addresses > 0:
		a.report(o, diag.Warning, codeEndpoints, "spec.selector",
			"add a Pod that is not being deleted, and whose condition Ready is \"True\" or left out",
			"no Pod that the Service selects is ready (%s): %s", pods.unusableText, effect)
	default:
		a.report(o, diag.Warning, codeEndpoints, "spec.selector", fix,
			"no Pod that the Service selects has an IP address (%s): %s", pods.addressless, effect)
	}
}

// targetPorts checks that the containers behind a Service have the ports that it sends traffic to. Containers need not
// declare their ports, so a port number is checked only if every Pod declares some.
func (a *analysis) targetPorts(o *kinds.Object) {
	spec := &o.Spec.(*corev1.Service).Spec
	if len(spec.Selector) == 0 || spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	pods := a.selection(o.Namespace, spec.Selector)
	if pods.machine || pods.workloads == 0 { // a machine has no containers
		return
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		field := indexed("spec.ports", i) + ".targetPort"
		if name := p.TargetPort.StrVal; p.TargetPort.Type == intstr.String {
			if cmp.Or(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP && !pods.names[name] && !a.sliced(o, p.Name) {
				a.report(o, diag.Error, codeTargetPort, field, a.otherPort(name, pods.nameList),
					"no container of the pods that the Service selects has a port named %q: the port has no endpoints, and requests to it get 503", name)
			}
			continue
		}
		number := uint32(cmp.Or(p.TargetPort.IntVal, p.Port)) //nolint:gosec // validated
		if pods.allDeclare && !pods.numbers[number] && !slices.Contains(a.ingressPorts()[o.Namespace], number) {
			if p.TargetPort.IntVal == 0 {
				field = indexed("spec.ports", i) + ".port"
			}
			a.report(o, diag.Warning, codeTargetPort, field, "the containers declare "+pods.numberText,
				"no container of the pods that the Service selects declares port %d", number)
		}
	}
}

func (a *analysis) otherPort(name string, declared []string) string {
	if _, err := strconv.ParseUint(name, 10, 16); err == nil {
		return "remove the quotes: " + name
	}
	if near := a.nearest(name, declared); near != "" {
		return diag.DidYouMean(near)
	}
	if len(declared) > 0 {
		return "use one of " + listed(declared) + ", or a number"
	}
	return "give a containerPort this name, or write a number"
}

// sliced reports whether an EndpointSlice has the target of a Service's port.
func (a *analysis) sliced(o *kinds.Object, port string) bool {
	return slices.ContainsFunc(a.slices[o.Namespace+"/"+o.Name], func(s Slice) bool { return s.Ports[port] != 0 })
}
