package kube

import (
	"cmp"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// slice is one EndpointSlice and the endpoints made of it, which are kept until something that it names changes.
type slice struct {
	name    name
	service name
	facts   *SliceFacts
	stale   bool
	built   []*registry.Endpoint
	pending int
}

func (r *Registry) applySlice(n name, o *kinds.Object) {
	old, next := r.slices[n], newSlice(n, o)
	if old != nil {
		r.dropSlice(old)
	}
	if next != nil {
		if old != nil && next.service == old.service {
			next.built = old.built
		}
		r.addSlice(next)
	}
	for _, sl := range []*slice{old, next} {
		if sl == nil {
			continue
		}
		r.mark(sl.service)
		if s := r.services[sl.service]; s != nil && s.picksPods != r.picksPods(sl.service) {
			r.reselect(sl.service)
		}
	}
}

// newSlice returns nil for a slice that has no endpoints for Envoy: one without a service, or one of host names.
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
	if r.byService[sl.service] == nil {
		r.byService[sl.service] = map[string]*slice{}
	}
	r.byService[sl.service][sl.name.name] = sl
	sl.eachTarget(func(p name) { put(r.podSlices, p, sl) }, func(ip string) { put(r.ipSlices, ip, sl) })
}

func (r *Registry) dropSlice(sl *slice) {
	delete(r.slices, sl.name)
	if delete(r.byService[sl.service], sl.name.name); len(r.byService[sl.service]) == 0 {
		delete(r.byService, sl.service)
	}
	sl.eachTarget(func(p name) { drop(r.podSlices, p, sl) }, func(ip string) { drop(r.ipSlices, ip, sl) })
	r.pending -= sl.pending
}

// eachTarget calls pod for each endpoint that names a pod, and ip for each address of the remaining endpoints.
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

// target is the pod that an endpoint names.
func (sl *slice) target(e *SliceEndpoint) (name, bool) {
	if !e.HasPod {
		return name{}, false
	}
	return name{cmp.Or(e.PodNamespace, sl.name.namespace), e.Pod}, true
}

func (r *Registry) markSlice(sl *slice) {
	sl.stale = true
	r.mark(sl.service)
}

// unbuild forgets the endpoints of a slice whose service went, or has none.
func (r *Registry) unbuild(sl *slice) {
	r.pending -= sl.pending
	sl.pending, sl.built, sl.stale = 0, nil, true
}

func (r *Registry) build(sl *slice, svc *registry.Service) {
	r.pending -= sl.pending
	sl.stale, sl.pending = false, 0
	out := make([]*registry.Endpoint, 0, len(sl.facts.Endpoints))
	ports := sl.facts.portsOf(svc)
	for i := range sl.facts.Endpoints {
		e := &sl.facts.Endpoints[i]
		health, ok := condition(e, svc)
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
				p = r.podAt(address)
			}
			health, ok := draining(p, health, svc)
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
	sl.built, _ = registry.ReuseEndpoints(sl.built, out)
}

func (r *Registry) sliceEndpoint(
	svc *registry.Service, from *SliceEndpoint, p *pod, address, port string, number uint32, health registry.Health,
) *registry.Endpoint {
	e := &registry.Endpoint{Cluster: r.opts.Cluster, ServicePort: port, Port: number}
	if p != nil {
		e = p.endpoint(svc, port, number)
	}
	e.Network = r.namespaces.Network(address, e.Labels) // the pod may not have come to know its address yet
	e.Address, e.Health, e.HealthKnown = address, health, true
	if e.NodeName == "" {
		e.NodeName = from.NodeName
	}
	if from.HostName != "" {
		e.HostName, e.SubDomain = from.HostName, svc.Name
	}
	return e
}

// condition returns the health of a slice's endpoint, and whether the endpoint is used. One that terminates is left
// out, unless its service's sessions persist and it still serves.
func condition(e *SliceEndpoint, svc *registry.Service) (registry.Health, bool) {
	switch {
	case e.Ready:
		return registry.Healthy, true
	case e.Terminating:
		return registry.Draining, svc.Unhealthy && e.Serving
	case svc.PublishNotReady:
		return registry.Healthy, true
	}
	return registry.Unhealthy, true
}

// draining: a pod labelled as such counts as one that terminates.
func draining(p *pod, health registry.Health, svc *registry.Service) (registry.Health, bool) {
	if p == nil || p.workload.Labels[registry.LabelDraining] == "" {
		return health, true
	}
	return registry.Draining, svc.Unhealthy
}

// endpointsOf returns the service's endpoints: of its slices, or of the pods it selects, and of the WorkloadEntries it
// selects.
func (r *Registry) endpointsOf(n name, s *service) []*registry.Endpoint {
	slicesOf := r.byService[n]
	if s.now.Resolution == registry.Alias {
		for _, sl := range slicesOf {
			r.unbuild(sl)
		}
		return nil
	}
	var all []*registry.Endpoint
	for _, k := range slices.Sorted(maps.Keys(slicesOf)) {
		sl := slicesOf[k]
		if sl.stale {
			r.build(sl, s.now)
		}
		all = append(all, sl.built...)
	}
	if s.picksPods {
		for _, p := range selected(r.podSelectors.Selected, n) {
			all = append(all, r.pods[p].endpoints(s)...)
		}
	}
	if !s.now.Headless { // its clients find addresses in DNS, where machines are not
		for _, e := range selected(r.entrySelectors.Selected, n) {
			all = append(all, entryEndpoints(r.entries[e].workload, s.now)...)
		}
	}
	sortEndpoints(all)
	// While endpoints move from one slice to another, both list them: the healthier one counts, then the first by the
	// name of the slice.
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
