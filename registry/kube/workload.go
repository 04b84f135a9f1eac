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

// rememberOld stores a workload as it was returned before the batch.
func (r *Registry) rememberOld(k registry.WorkloadKey) {
	if _, ok := r.oldWorkloads[k]; !ok {
		r.oldWorkloads[k] = r.currentWorkload(k)
	}
}

func (r *Registry) currentWorkload(k registry.WorkloadKey) *registry.Workload {
	n := name{k.Namespace, k.Name}
	if k.Kind == kinds.Pod {
		if p := r.pods[n]; p.isWorkload() {
			return p.workload
		}
		return nil
	}
	if e := r.entries[n]; e != nil {
		return e.workload
	}
	return nil
}

// endpoint returns the pod as an endpoint of a service port. It has a host name in the headless service of its
// subdomain's name.
func (p *pod) endpoint(svc *registry.Service, port string, number uint32) *registry.Endpoint {
	e := p.workload.Endpoint(port, number)
	if p.hostname != "" && p.domain == svc.Name && p.workload.Namespace == svc.Namespace {
		e.HostName, e.SubDomain = p.hostname, p.domain
	}
	return e
}

// endpoints returns what controllers would write into the slices of a service that selects this pod.
func (p *pod) endpoints(s *service) []*registry.Endpoint {
	w := p.workload
	health := registry.Healthy
	if !w.Ready && !s.current.PublishNotReady {
		health = registry.Unhealthy
	}
	health, ok := podHealth(p, health, s.current)
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
		for _, port := range s.current.Ports {
			number, ok := targetPort(port, w)
			if !ok {
				continue
			}
			e := p.endpoint(s.current, port.Name, number)
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

// targetPort returns the workload's number of a service port. It returns false if the workload lacks the named port.
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
