package kube

import (
	"strconv"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

func (r *Registry) key(kind *kinds.Kind, n name) registry.WorkloadKey {
	k := registry.WorkloadKey{Kind: kind, Namespace: n.namespace, Name: n.name}
	if r.opts.Remote {
		k.Cluster = r.opts.Cluster
	}
	return k
}

// touch remembers what was handed on for a workload before the batch changed it.
func (r *Registry) touch(k registry.WorkloadKey) {
	if _, ok := r.before[k]; !ok {
		r.before[k] = r.current(k)
	}
}

func (r *Registry) current(k registry.WorkloadKey) *registry.Workload {
	n := name{k.Namespace, k.Name}
	if k.Kind == kinds.Pod {
		if p := r.pods[n]; p.visible() {
			return p.workload
		}
		return nil
	}
	if e := r.entries[n]; e != nil {
		return e.workload
	}
	return nil
}

// endpoint is the pod behind a port of the service. In a headless service whose name is the pod's subdomain it has a
// host name.
func (p *pod) endpoint(svc *registry.Service, port string, number uint32) *registry.Endpoint {
	e := p.workload.Endpoint(port, number)
	if p.hostname != "" && p.domain == svc.Name && p.workload.Namespace == svc.Namespace {
		e.HostName, e.SubDomain = p.hostname, p.domain
	}
	return e
}

// endpoints are what a cluster would write into the slices of a service that selects this pod.
func (p *pod) endpoints(s *service) []*registry.Endpoint {
	w := p.workload
	health := registry.Healthy
	if !w.Ready && !s.now.PublishNotReady {
		health = registry.Unhealthy
	}
	health, ok := draining(p, health, s.now)
	if !ok {
		return nil
	}
	var out []*registry.Endpoint
	var seen family
	for _, ip := range w.Addresses {
		f := familyOf(ip)
		if seen&f != 0 || s.families&f == 0 && (s.families != 0 || seen != 0) {
			continue
		}
		seen |= f
		for _, port := range s.now.Ports {
			number, ok := targetPort(port, w)
			if !ok {
				continue
			}
			e := p.endpoint(s.now, port.Name, number)
			e.Address, e.Health, e.HealthKnown = ip, health, true
			out = append(out, e)
		}
	}
	return out
}

func entryEndpoints(w *registry.Workload, svc *registry.Service) []*registry.Endpoint {
	if !w.Reachable() || !w.Ready {
		return nil
	}
	var out []*registry.Endpoint
	for _, port := range svc.Ports {
		number, ok := w.Ports[port.Name]
		if !ok {
			number, ok = targetPort(port, w)
		}
		if ok {
			out = append(out, w.Endpoint(port.Name, number))
		}
	}
	return out
}

// targetPort is the workload's port behind a service port; there is none where the service names a port that the
// workload lacks.
func targetPort(p registry.Port, w *registry.Workload) (uint32, bool) {
	if p.TargetPort == "" {
		return p.Number, true
	}
	if n, err := strconv.ParseUint(p.TargetPort, 10, 16); err == nil {
		return uint32(n), true
	}
	n, ok := w.Ports[p.TargetPort]
	return n, ok
}
