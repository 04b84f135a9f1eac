package kube

import (
	"maps"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry"
)

const (
	annotationGroup  = names.AnnotationRegistrationGroup
	annotationHealth = names.AnnotationHealthChecks // present if the health is reported, which then decides whether it serves
)

// entry is the stored part of one WorkloadEntry.
type entry struct {
	object   *kinds.Object
	workload *registry.Workload
}

func (r *Registry) applyEntry(n name, o *kinds.Object) {
	if r.entries[n] == nil && o == nil {
		return
	}
	if !r.indexed {
		r.indexed = true
		for s := range r.services {
			r.indexSelector(s)
		}
	}
	r.rememberOld(r.key(kinds.WorkloadEntry, n))
	r.entrySelectors.Selecting(n, r.markDirty)
	if o == nil {
		r.entrySelectors.RemoveMember(n)
		delete(r.entries, n)
		return
	}
	w := r.newEntry(n, o)
	r.entries[n] = &entry{o, w}
	r.entrySelectors.SetMember(n, n.namespace, w.Labels)
	r.entrySelectors.Selecting(n, r.markDirty)
}

// newEntry returns the workload of a WorkloadEntry. Its network is the one in its spec, because a machine is not in a
// cluster's network.
func (r *Registry) newEntry(n name, o *kinds.Object) *registry.Workload {
	spec := o.Spec.(*networkingv1.WorkloadEntry)
	w := &registry.Workload{
		WorkloadKey: r.key(kinds.WorkloadEntry, n), Labels: o.Labels, ServiceAccount: spec.ServiceAccount, Network: spec.Network,
		Cluster: r.opts.Cluster, Ready: healthy(o),
		Owner: n.name, Ports: spec.Ports, Weight: spec.Weight, Created: o.Created, Locality: registry.ParseLocality(spec.Locality),
	}
	if len(spec.Labels) > 0 {
		w.Labels = maps.Clone(spec.Labels)
		maps.Copy(w.Labels, o.Labels)
	}
	if g := o.Annotations[annotationGroup]; g != "" {
		w.Owner = g
	}
	if spec.Address != "" {
		w.Addresses = []string{spec.Address}
	}
	if spec.ServiceAccount != "" {
		w.Identity = registry.SPIFFE(r.opts.TrustDomain, n.namespace, spec.ServiceAccount)
	}
	w.TLSMode = registry.EntryTLSMode(w.Labels, spec.ServiceAccount)
	if spec.Locality == "" {
		w.Locality, _ = registry.LocalityOf(w.Labels)
	}
	return w
}

// healthy reports whether a WorkloadEntry may serve. An entry with a health check serves only after it was reported as
// healthy.
func healthy(o *kinds.Object) bool {
	return o.Annotations[annotationHealth] != "true" || o.Annotations[kinds.AnnotationHealthy] == "true"
}
