package analysis

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

func (a *analysis) destinationRule(o *kinds.Object) {
	spec := o.Spec.(*networkingv1.DestinationRule)
	name := names.FQDN(spec.Host, o.Namespace, a.domain)
	a.repeated(o, name)
	if strings.HasPrefix(name, "*") {
		if !a.under(name) {
			a.report(o, diag.Warning, codeReference, "spec.host", "name another host, or remove the rule", "no Service or ServiceEntry has a host under %s: the rule has no effect", name)
		}
		return
	}
	all := a.hosts[name]
	if len(all) == 0 {
		if a.wildcard(name) != nil {
			return
		}
		fix := "add a Service or a ServiceEntry, or name another host"
		if near := a.meant(spec.Host, name); near != "" {
			fix = diag.DidYouMean(near)
		}
		a.report(o, diag.Warning, codeReference, "spec.host", fix, "no Service or ServiceEntry has the host %s: the rule has no effect", name)
		return
	}
	var others []map[string]string
	for _, s := range spec.Subsets {
		others = append(others, s.Labels)
	}
	for i, s := range spec.Subsets {
		if len(s.Labels) > 0 && a.lacks(all, s.Labels) {
			a.report(o, diag.Warning, codeSubset, indexed("spec.subsets", i)+".labels", a.otherLabels(all[0].object.Namespace, s.Labels, others...), "no workload of %s has these labels: the subset %q has no endpoints, and requests to it get 503", name, s.Name)
		}
	}
}

// subset is the name of one that rules of a namespace define for those who see them.
type subset struct{ namespace, host, exportTo, name string }

// repeated reports the subsets of a rule that another of its namespace and host defines too. Such rules are merged.
func (a *analysis) repeated(o *kinds.Object, host string) {
	spec := o.Spec.(*networkingv1.DestinationRule)
	if spec.WorkloadSelector != nil {
		return
	}
	exportTo := strings.Join(slices.Sorted(slices.Values(spec.ExportTo)), ",")
	for i, s := range spec.Subsets {
		key := subset{o.Namespace, host, exportTo, s.Name}
		if first := a.subsets[key]; first == nil {
			a.subsets[key] = o
		} else if first != o {
			a.report(o, diag.Warning, codeRepeated, indexed("spec.subsets", i)+".name", "rename one, or remove it", "%s defines the subset %q of %s too, and its definition counts: this one has no effect", first, s.Name, host)
		}
	}
}

// lacks reports whether the workloads of a host are known, and none of them has those labels.
func (a *analysis) lacks(all []*host, labels map[string]string) bool {
	known := false
	for _, h := range all {
		var selector map[string]string
		switch spec := h.object.Spec.(type) {
		case *corev1.Service:
			selector = spec.Spec.Selector
		case *networkingv1.ServiceEntry:
			if len(spec.Endpoints) > 0 {
				known = true
				for _, e := range spec.Endpoints {
					if kinds.Selects(labels, e.Labels) {
						return false
					}
				}
				continue
			}
			selector = spec.GetWorkloadSelector().GetLabels()
		}
		if len(selector) == 0 || !a.selects(h.object.Namespace, selector) {
			return false // the workloads are not known, or the selector is a finding already
		}
		known = true
		if all := joined(selector, labels); kinds.Selects(selector, all) && a.selects(h.object.Namespace, all) {
			return false
		}
	}
	return known
}
