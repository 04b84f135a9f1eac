package analysis

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// selectorOf returns the selector of an object and the path of its labels, or "" and nil if it has none.
func selectorOf(o *kinds.Object) (field string, labels map[string]string) {
	switch spec := o.Spec.(type) {
	case *corev1.Service:
		if spec.Spec.Type != corev1.ServiceTypeExternalName {
			return "spec.selector", spec.Spec.Selector
		}
	case *networkingv1.Gateway:
		return "spec.selector", spec.Selector
	case interface {
		GetSelector() *typev1beta1.WorkloadSelector
	}:
		return "spec.selector.matchLabels", spec.GetSelector().GetMatchLabels()
	case interface {
		GetWorkloadSelector() *typev1beta1.WorkloadSelector
	}:
		return "spec.workloadSelector.matchLabels", spec.GetWorkloadSelector().GetMatchLabels()
	case interface {
		GetWorkloadSelector() *networkingv1alpha3.WorkloadSelector
	}:
		return "spec.workloadSelector.labels", spec.GetWorkloadSelector().GetLabels()
	}
	return "", nil
}

// everywhere reports whether an object selects in all namespaces, as policies of the root namespace do, and Gateways
// unless they are limited to their own namespaces.
func (a *analysis) everywhere(o *kinds.Object) bool {
	switch o.Kind {
	case kinds.Gateway:
		return kinds.GatewayNamespace(o, a.options.ScopedGateways) == everyNamespace
	case kinds.Service, kinds.ServiceEntry, kinds.Sidecar, kinds.DestinationRule:
		return false
	}
	return o.Namespace == a.root
}

// selector reports an object that selects no workload.
func (a *analysis) selector(o *kinds.Object) {
	switch {
	// A proxy with any labels may connect without a Pod; an endpoint may not.
	case len(a.namespaces) == 0 && (!a.options.Whole || o.Kind != kinds.Service):
		return
	case o.Kind == kinds.Service && len(a.slices[o.Namespace+"/"+o.Name]) > 0:
		return
	}
	field, labels := selectorOf(o)
	ns, where := o.Namespace, "of namespace "+o.Namespace
	if a.everywhere(o) {
		ns, where = "", "of any namespace"
	}
	if a.selects(ns, labels) {
		return
	}
	severity, effect := diag.Warning, "the object has no effect"
	switch o.Kind {
	case kinds.Service, kinds.ServiceEntry:
		effect = "it has no endpoints, and requests to it get 503"
		if a.bypassed(o) {
			severity, effect = diag.Info, "it has no endpoints, and VirtualServices send no request to it at present"
		}
	case kinds.Gateway:
		effect = "nothing listens on its ports"
		if elsewhere := a.selection(everyNamespace, labels).namespaces; ns != "" && len(elsewhere) > 0 {
			a.report(o, severity, codeWorkloads, "metadata.namespace",
				"move the Gateway to the namespace of its workloads, or unset "+names.ScopeGatewaysVariable,
				"only workloads of other namespaces have the labels %s, such as of %s, and Gateways are limited to their own: %s",
				written(labels), elsewhere[0], effect)
			return
		}
	}
	if ended := a.endedWith(ns, labels); ended != nil {
		a.report(o, severity, codeWorkloads, field, "start a Pod with these labels, or remove the object",
			"every Pod %s with the labels %s has ended, such as %s: %s", where, written(labels), ended, effect)
		return
	}
	a.report(o, severity, codeWorkloads, field, a.otherLabels(ns, labels),
		"no Pod or WorkloadEntry %s has the labels %s: %s", where, written(labels), effect)
}

// endedWith returns a Pod that has ended, of a namespace and with some labels, or nil. The namespace "" stands for all.
func (a *analysis) endedWith(namespace string, labels map[string]string) *kinds.Object {
	if a.hints++; a.hints > maxHints {
		return nil
	}
	i := slices.IndexFunc(a.ended, func(o *kinds.Object) bool {
		return (namespace == "" || o.Namespace == namespace) && kinds.Selects(labels, o.Labels)
	})
	if i < 0 {
		return nil
	}
	return a.ended[i]
}

// bypassed reports whether a Service is the host or a destination of VirtualServices, and all of them give it no weight
// at present.
func (a *analysis) bypassed(o *kinds.Object) bool {
	led, known := a.ledHosts()[names.FQDN(o.Name, o.Namespace, a.domain)]
	return o.Kind == kinds.Service && known && !led
}

// ledHosts returns the hosts that VirtualServices for sidecars have or that VirtualServices lead to, and whether one
// sends requests there.
func (a *analysis) ledHosts() map[string]bool {
	if a.led != nil {
		return a.led
	}
	a.led = map[string]bool{}
	lead := func(o *kinds.Object, d *networkingv1alpha3.Destination, sends bool) {
		if d.GetHost() != "" {
			name := names.Destination(d.Host, o.Namespace, a.domain)
			a.led[name] = a.led[name] || sends
		}
	}
	for o, h := range a.httpRules {
		for _, r := range h.Route {
			lead(o, r.Destination, takesRequests(r.Weight, len(h.Route)))
		}
		lead(o, h.Mirror, true)
		for _, m := range h.Mirrors {
			lead(o, m.Destination, true)
		}
	}
	for _, o := range a.routes {
		spec := o.Spec.(*networkingv1.VirtualService)
		if slices.Contains(gatewaysOf(o), meshGateway) {
			for _, h := range spec.Hosts {
				name := names.FQDN(h, o.Namespace, a.domain)
				a.led[name] = a.led[name] || len(spec.Http) == 0
			}
		}
		for _, t := range spec.Tls {
			for _, r := range t.Route {
				lead(o, r.Destination, takesRequests(r.Weight, len(t.Route)))
			}
		}
		for _, t := range spec.Tcp {
			for _, r := range t.Route {
				lead(o, r.Destination, takesRequests(r.Weight, len(t.Route)))
			}
		}
	}
	return a.led
}

// httpRules yields the HTTP rules of VirtualServices. Many derived VirtualServices share rules, and such a rule is
// yielded once for each of their namespaces.
func (a *analysis) httpRules(yield func(*kinds.Object, *networkingv1alpha3.HTTPRoute) bool) {
	type rule struct {
		namespace string
		*networkingv1alpha3.HTTPRoute
	}
	seen := map[rule]bool{}
	for _, o := range a.routes {
		for _, h := range o.Spec.(*networkingv1.VirtualService).Http {
			if seen[rule{o.Namespace, h}] {
				continue
			}
			if seen[rule{o.Namespace, h}] = true; !yield(o, h) {
				return
			}
		}
	}
}

// otherLabels returns the fix for labels that no workload of the namespace has; "" stands for any namespace. It
// suggests only labels of that namespace.
func (a *analysis) otherLabels(namespace string, labels map[string]string, others ...map[string]string) string {
	const otherwise = "use labels that the workloads have"
	if a.hints++; a.hints > maxHints {
		return otherwise
	}
	there := map[pair]bool{}
	for ns, list := range a.workloads {
		for _, w := range list {
			for k, v := range w.labels {
				if namespace == "" || namespace == ns {
					there[pair{k, v}] = true
				}
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if there[pair{k, labels[k]}] {
			continue
		}
		var keys, values []string
		for p := range there {
			keys = append(keys, p.key)
			if p.key == k {
				values = append(values, p.value)
			}
		}
		if len(values) == 0 {
			if near := diag.Nearest(k, keys); near != "" {
				return fmt.Sprintf("did you mean the label %q?", near)
			}
			continue
		}
		meant := slices.DeleteFunc(slices.Clone(values), func(v string) bool {
			return slices.ContainsFunc(others, func(o map[string]string) bool { return o[k] == v })
		})
		if near := diag.Nearest(labels[k], meant); near != "" {
			return fmt.Sprintf("did you mean %s: %s?", k, near)
		}
		return fmt.Sprintf("%s is one of %s there", k, listed(values))
	}
	return otherwise
}

// written lists labels as users write selectors.
func written(labels map[string]string) string {
	list := lists.Map(slices.Sorted(maps.Keys(labels)), func(k string) string { return k + "=" + labels[k] })
	return strings.Join(list, ",")
}
