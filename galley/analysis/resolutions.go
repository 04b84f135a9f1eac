package analysis

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// resolutions reports WorkloadEntries with a host name whose service does not resolve names, and ServiceEntries with
// several names whose proxies resolve only one.
func (a *analysis) resolutions() {
	told := map[selectionKey]bool{}
	counts := map[selectionKey]int{}
	first := map[string]*kinds.Object{} // oldest entry with an endpoint, by namespace and host
	for _, o := range a.of(kinds.ServiceEntry) {
		spec := o.Spec.(*networkingv1.ServiceEntry)
		switch spec.Resolution {
		case networkingv1.ServiceEntry_STATIC:
			a.unresolved(o, spec.WorkloadSelector.GetLabels(), "set its resolution to DNS", told)
		case networkingv1.ServiceEntry_DNS_ROUND_ROBIN:
			a.severalNames(o, spec, counts, first)
		}
	}
	for _, o := range a.services {
		if spec := &o.Spec.(*corev1.Service).Spec; spec.Type != corev1.ServiceTypeExternalName {
			a.unresolved(o, spec.Selector, "select it by a ServiceEntry with resolution DNS", told)
		}
	}
}

// unresolved reports the selected WorkloadEntries with a host name, for a service that uses endpoints by address. It
// checks the workloads of each selector once.
func (a *analysis) unresolved(o *kinds.Object, selector map[string]string, fix string, told map[selectionKey]bool) {
	key := selectionKey{o.Namespace, written(selector)}
	if len(selector) == 0 || told[key] {
		return
	}
	told[key] = true
	for w := range a.selected(o.Namespace, selector) {
		if w.object.Kind != kinds.WorkloadEntry {
			continue
		}
		address := w.object.Spec.(*networkingv1.WorkloadEntry).Address
		if _, err := netip.ParseAddr(address); err == nil || address == "" || strings.HasPrefix(address, "unix://") {
			continue
		}
		a.report(w.object, diag.Warning, codeUnresolved, "spec.address", "write an IP address, or "+fix,
			"%q is a name, and %s, which selects the entry, has its endpoints by address: proxies are not sent this one", address, o)
	}
}

// severalNames reports a ServiceEntry whose endpoints are not all sent to proxies.
func (a *analysis) severalNames(o *kinds.Object, spec *networkingv1.ServiceEntry,
	counts map[selectionKey]int, first map[string]*kinds.Object) {
	endpoints := len(spec.Endpoints)
	if labels := spec.WorkloadSelector.GetLabels(); spec.WorkloadSelector != nil {
		key := selectionKey{o.Namespace, written(labels)}
		n, counted := counts[key]
		if !counted {
			for w := range a.selected(o.Namespace, labels) {
				if w.object.Kind != kinds.WorkloadGroup {
					n++
				}
			}
			counts[key] = n
		}
		endpoints = n
	} else if endpoints == 0 {
		endpoints = 1 // the host itself
	}
	const fix = "set resolution to DNS"
	if endpoints > 1 {
		a.report(o, diag.Warning, codeSeveral, "spec.workloadSelector", fix,
			"the entry has %d endpoints, and with resolution DNS_ROUND_ROBIN proxies resolve one name: all requests go to the first", endpoints)
	}
	for i, host := range spec.Hosts {
		key := o.Namespace + "/" + host
		switch oldest := first[key]; {
		case endpoints == 0:
		case oldest == nil:
			first[key] = o
		default:
			a.report(o, diag.Warning, codeSeveral, indexed("spec.hosts", i), fix+" in both entries",
				"%s has an endpoint of host %s too, and with resolution DNS_ROUND_ROBIN proxies resolve one name: the name of this entry is not used",
				oldest, host)
		}
	}
}
