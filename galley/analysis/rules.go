package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
)

func (a *analysis) destinationRule(o *kinds.Object) {
	spec := o.Spec.(*networkingv1.DestinationRule)
	name := names.FQDN(spec.Host, o.Namespace, a.domain)
	a.counted(o, name)
	if strings.HasPrefix(name, "*") {
		if !a.under(name) {
			a.report(o, diag.Warning, codeReference, "spec.host", "name another host, or remove the rule",
				"no Service or ServiceEntry has a host under %s: the rule has no effect", name)
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
	if a.unusedRule(o, all) {
		return
	}
	var others []map[string]string
	for _, s := range spec.Subsets {
		others = append(others, s.Labels)
	}
	for i, s := range spec.Subsets {
		if len(s.Labels) == 0 {
			continue
		}
		if fix := a.elsewhere(name, s.Labels); fix != "" {
			a.report(o, diag.Warning, codeSubset, indexed("spec.subsets", i)+".labels", fix,
				"no endpoint of %s is in this place: the subset %q has no endpoints, and requests to it get 503", name, s.Name)
		} else if own := unplaced(s.Labels); a.lacks(all, own) {
			a.report(o, diag.Warning, codeSubset, indexed("spec.subsets", i)+".labels", a.otherLabels(all[0].object.Namespace, own, others...),
				"no workload of %s has these labels: the subset %q has no endpoints, and requests to it get 503", name, s.Name)
		}
	}
}

// unusedRule reports a rule for a host that no proxy uses: for an alias, or of a namespace without proxies that is
// neither the host's nor the root namespace.
func (a *analysis) unusedRule(o *kinds.Object, all []*host) bool {
	if to := aliasOf(all[0].object); to != "" {
		a.report(o, diag.Warning, codeUnusedRule, "spec.host", "name the host "+to,
			"%s is an alias, and calls to it follow the rules of the host that it stands for: the rule has no effect", all[0].object)
		return true
	}
	own := slices.ContainsFunc(all, func(h *host) bool { return h.object.Namespace == o.Namespace })
	if own || o.Namespace == a.root || len(a.namespaces) == 0 || len(a.workloads[o.Namespace]) > 0 {
		return false
	}
	a.report(o, diag.Warning, codeUnusedRule, "metadata.namespace", "write it into namespace "+all[0].object.Namespace+", of the host",
		"rules apply to callers of their own namespace, or are of the namespace of the host or the root namespace: "+
			"namespace %s has no workload, and %s is of namespace %s, so the rule has no effect",
		o.Namespace, all[0].object, all[0].object.Namespace)
	return true
}

// subset is the name of a subset that rules of a namespace with an exportTo define for a host.
type subset struct{ namespace, host, exportTo, name string }

// counted reports the subsets of a rule that another rule of the same namespace and host defines too, and subsets that
// are left out because there are too many. Such rules are merged.
func (a *analysis) counted(o *kinds.Object, host string) {
	spec := o.Spec.(*networkingv1.DestinationRule)
	if spec.WorkloadSelector != nil {
		a.fitting(o, host, 0, len(spec.Subsets))
		return
	}
	all := subset{o.Namespace, host, strings.Join(slices.Sorted(slices.Values(spec.ExportTo)), ","), ""}
	before := a.counts[all]
	defer func() { a.fitting(o, host, before, a.counts[all]) }()
	for i, s := range spec.Subsets {
		key := all
		key.name = s.Name
		if first := a.subsets[key]; first == nil {
			a.subsets[key] = o
			a.counts[all]++
		} else if first != o {
			a.report(o, diag.Warning, codeRepeated, indexed("spec.subsets", i)+".name", "rename one, or remove it",
				"%s defines the subset %q of %s too, and its definition is used (%s): this one has no effect",
				first, s.Name, host, precedence(first, o))
		}
	}
}

// fitting adds a finding if not all subsets of a rule fit within the limits, after the subsets that other rules define
// for the host before it.
func (a *analysis) fitting(o *kinds.Object, name string, before, subsets int) {
	most := a.options.HostClusters
	if subsets == before || subsets <= limits.Subsets(most, a.mostPorts) {
		return
	}
	widest := a.widestOf(o.Namespace, name)
	if widest == nil {
		return
	}
	if fit := limits.Subsets(most, len(widest.ports)); subsets > fit {
		a.report(o, diag.Error, codeLimit, "spec.subsets", "define fewer subsets, or divide the ports among several Services",
			"the %d ports of %s, times its %d subsets and itself, are more than %d clusters (HostClusters): "+
				"the first %d of this rule stay, its others are left out, and requests to them get 503",
			len(widest.ports), widest.name, subsets, most, max(fit-before, 0))
	}
}

// widestOf returns the host with the most ports among the hosts that rules of a namespace and host apply to, or nil if
// there is none.
func (a *analysis) widestOf(namespace, name string) *host {
	key := subset{namespace: namespace, host: name}
	widest, known := a.widest[key]
	if known {
		return widest
	}
	for h := range a.hostsUnder(name) {
		if (widest == nil || cmp.Or(len(h.ports)-len(widest.ports), strings.Compare(widest.name, h.name)) > 0) &&
			a.closest(namespace, h.name) == name {
			widest = h
		}
	}
	a.widest[key] = widest
	return widest
}

// closest returns the most specific host of the namespace's rules that covers a host.
func (a *analysis) closest(namespace, host string) string {
	for pattern := range a.patterns(host) {
		if slices.ContainsFunc(a.ruled[pattern], func(o *kinds.Object) bool { return o.Namespace == namespace }) {
			return pattern
		}
	}
	return ""
}

// placeKey is a host and the name of a locality label.
type placeKey struct{ host, label string }

// placeValues are the sorted values of a locality label on the endpoints of a host. some reports whether the host has
// an endpoint.
type placeValues struct {
	values []string
	some   bool
}

// placesOf returns the values of a locality label on the endpoints of a host. It reads the endpoints once for all
// subsets.
func (a *analysis) placesOf(k placeKey) placeValues {
	p, known := a.places[k]
	if known {
		return p
	}
	for e := range a.options.World.Endpoints(k.host) {
		p.some = true
		if value, ok := e.Lookup(k.label); ok {
			p.values = append(p.values, value)
		}
	}
	slices.Sort(p.values)
	p.values = slices.Compact(p.values)
	lists.Put(&a.places, k, p)
	return p
}

// elsewhere returns the fix for locality labels that no endpoint of a host has. It returns "" if an endpoint has them,
// if none of the labels is a locality label, and if localities are unknown.
func (a *analysis) elsewhere(host string, labels map[string]string) string {
	if a.options.World == nil {
		return ""
	}
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		if !names.IsPlaceLabel(label) {
			continue
		}
		p := a.placesOf(placeKey{host, label})
		if _, found := slices.BinarySearch(p.values, labels[label]); found || !p.some {
			continue
		}
		if len(p.values) == 0 {
			return fmt.Sprintf("remove %s: no endpoint there has it", label)
		}
		return fmt.Sprintf("%s is one of %s there", label, listed(p.values))
	}
	return ""
}

// lacks reports whether the workloads of a host are known and none of them has the labels.
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
			return false // the workloads are unknown, or the selector has a finding already
		}
		known = true
		if all := joined(selector, labels); kinds.Selects(selector, all) && a.selects(h.object.Namespace, all) {
			return false
		}
	}
	return known
}
