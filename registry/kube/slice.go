package kube

import (
	"cmp"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry"
)

// slice is one EndpointSlice and the endpoints made from it. They are cached until an object that the slice names
// changes.
type slice struct {
	name      name
	service   name
	facts     *SliceFacts
	stale     bool
	endpoints []*registry.Endpoint
	pending   int
}

func (r *Registry) applySlice(n name, o *kinds.Object) {
	old, next := r.slices[n], newSlice(n, o)
	if old != nil {
		r.dropSlice(old)
	}
	if next != nil {
		if old != nil && next.service == old.service {
			next.endpoints = old.endpoints
		}
		r.addSlice(next)
	}
	for _, sl := range []*slice{old, next} {
		if sl == nil {
			continue
		}
		r.markDirty(sl.service)
		if s := r.services[sl.service]; s != nil && s.selectsPods != r.selectsPods(sl.service) {
			r.indexSelector(sl.service)
		}
	}
}

// newSlice returns nil for a slice without endpoints for Envoy: a slice of no service, or one of host names.
func newSlice(n name, o *kinds.Object) *slice {
	if o == nil {
		return nil
	}
	f, ok := o.Spec.(*SliceFacts)
	if !ok {
		f = SliceFactsOf(o.Spec.(*discoveryv1.EndpointSlice))
	}
	service := o.Labels[discoveryv1.LabelServiceName]
	if service == "" || f.Hosts {
		return nil
	}
	return &slice{name: n, service: name{n.namespace, service}, facts: f, stale: true}
}

func (r *Registry) addSlice(sl *slice) {
	r.slices[sl.name] = sl
	lists.PutIn(r.byService, sl.service, sl.name.name, sl)
	sl.eachTarget(func(p name) { addTo(r.podSlices, p, sl) }, func(ip string) { addTo(r.ipSlices, ip, sl) })
}

func (r *Registry) dropSlice(sl *slice) {
	delete(r.slices, sl.name)
	if delete(r.byService[sl.service], sl.name.name); len(r.byService[sl.service]) == 0 {
		delete(r.byService, sl.service)
	}
	sl.eachTarget(func(p name) { removeFrom(r.podSlices, p, sl) }, func(ip string) { removeFrom(r.ipSlices, ip, sl) })
	r.pending -= sl.pending
}

// eachTarget calls pod for each endpoint that names a pod, and ip for each address of the other endpoints.
func (sl *slice) eachTarget(pod func(name), ip func(string)) {
	for i := range sl.facts.Endpoints {
		e := &sl.facts.Endpoints[i]
		if n, ok := sl.target(e); ok {
			pod(n)
			continue
		}
		for _, a := range e.Addresses {
			ip(a)
		}
	}
}

// target returns the pod that an endpoint names.
func (sl *slice) target(e *SliceEndpoint) (name, bool) {
	if !e.HasPod {
		return name{}, false
	}
	return name{cmp.Or(e.PodNamespace, sl.name.namespace), e.Pod}, true
}

func (r *Registry) markSliceDirty(sl *slice) {
	sl.stale = true
	r.markDirty(sl.service)
}

// discardEndpoints drops the endpoints of a slice whose service was deleted.
func (r *Registry) discardEndpoints(sl *slice) {
	r.pending -= sl.pending
	sl.pending, sl.endpoints, sl.stale = 0, nil, true
}

func (r *Registry) buildEndpoints(sl *slice, svc *registry.Service) {
	r.pending -= sl.pending
	sl.stale, sl.pending = false, 0
	out := make([]*registry.Endpoint, 0, len(sl.facts.Endpoints))
	ports := sl.facts.portsOf(svc)
	for i := range sl.facts.Endpoints {
		e := &sl.facts.Endpoints[i]
		health, ok := endpointHealth(e, svc)
		if !ok {
			continue
		}
		target, named := sl.target(e)
		p := r.pods[target]
		if named && p == nil {
			sl.pending++
			continue
		}
		for _, address := range e.Addresses {
			if !named {
				p = r.podByAddress(address)
			}
			health, ok := podHealth(p, health, svc)
			if !ok {
				continue
			}
			for _, port := range ports {
				out = append(out, r.sliceEndpoint(svc, e, p, address, port.name, port.number, health))
			}
		}
	}
	r.pending += sl.pending
	sortEndpoints(out)
	sl.endpoints, _ = registry.ReuseEndpoints(sl.endpoints, out)
}

func (r *Registry) sliceEndpoint(
	svc *registry.Service, from *SliceEndpoint, p *pod, address, port string, number uint32, health registry.Health,
) *registry.Endpoint {
	e := &registry.Endpoint{Cluster: r.opts.Cluster, ServicePort: port, Port: number}
	if p != nil {
		e = p.endpoint(svc, port, number)
	}
	e.Network = r.namespaces.Network(address, e.Labels) // the pod may not have its address yet
	e.Address, e.Health, e.HealthKnown = address, health, true
	e.NodeName = cmp.Or(e.NodeName, from.NodeName)
	if from.HostName != "" {
		e.HostName, e.SubDomain = from.HostName, svc.Name
	}
	return e
}

// endpointHealth returns the health of a slice's endpoint, and whether it is included. A terminating endpoint is
// included only if its service has persistent sessions and the endpoint still serves.
func endpointHealth(e *SliceEndpoint, svc *registry.Service) (registry.Health, bool) {
	switch {
	case e.Ready:
		return registry.Healthy, true
	case e.Terminating:
		return registry.Draining, svc.SendDraining && e.Serving
	case svc.PublishNotReady:
		return registry.Healthy, true
	}
	return registry.Unhealthy, true
}

// podHealth is endpointHealth for a pod. A pod that is labelled as draining is treated as terminating.
func podHealth(p *pod, health registry.Health, svc *registry.Service) (registry.Health, bool) {
	if p == nil || p.workload.Labels[names.LabelDraining] == "" {
		return health, true
	}
	return registry.Draining, svc.SendDraining
}

// endpointsOf returns the service's endpoints: from its slices, or from the pods that it selects, and from the
// WorkloadEntries that it selects.
func (r *Registry) endpointsOf(n name, s *service) []*registry.Endpoint {
	slicesOf := r.byService[n]
	if s.current.Resolution == registry.Alias {
		for _, sl := range slicesOf {
			r.discardEndpoints(sl)
		}
		return nil
	}
	var all []*registry.Endpoint
	for _, k := range slices.Sorted(maps.Keys(slicesOf)) {
		sl := slicesOf[k]
		if sl.stale {
			r.buildEndpoints(sl, s.current)
		}
		all = append(all, sl.endpoints...)
	}
	if s.selectsPods {
		for _, p := range selected(r.podSelectors.Selected, n) {
			all = append(all, r.pods[p].endpoints(s)...)
		}
	}
	if !s.current.Headless { // clients of a headless service find addresses by DNS, which has no machines
		for _, e := range selected(r.entrySelectors.Selected, n) {
			all = append(all, entryEndpoints(r.entries[e].workload, s.current)...)
		}
	}
	sortEndpoints(all)
	// While endpoints move from one slice to another, both slices list them. The healthier one is used, then the first
	// by the name of the slice.
	return slices.CompactFunc(all, func(a, b *registry.Endpoint) bool { return registry.CompareEndpoints(a, b) == 0 })
}

func sortEndpoints(l []*registry.Endpoint) {
	slices.SortStableFunc(l, func(a, b *registry.Endpoint) int {
		if c := registry.CompareEndpoints(a, b); c != 0 {
			return c
		}
		return int(a.Health) - int(b.Health)
	})
}

func selected(from func(name, func(name)), service name) []name {
	var out []name
	from(service, func(n name) { out = append(out, n) })
	slices.SortFunc(out, name.compare)
	return out
}
