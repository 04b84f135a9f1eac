package registry

import (
	"maps"
	"slices"
)

// Equal reports whether two services are equal in every exported field.
func (s *Service) Equal(o *Service) bool {
	if s == o || s == nil || o == nil {
		return s == o
	}
	return s.Host == o.Host && s.Namespace == o.Namespace && s.Name == o.Name && s.Object == o.Object && s.Provider == o.Provider &&
		slices.Equal(s.Addresses, o.Addresses) && slices.Equal(s.AutoAddress, o.AutoAddress) && slices.Equal(s.Ports, o.Ports) &&
		s.Resolution == o.Resolution && s.Headless == o.Headless && s.ExternalName == o.ExternalName && s.MeshExternal == o.MeshExternal &&
		slices.Equal(s.ExportTo, o.ExportTo) && maps.Equal(s.Labels, o.Labels) && maps.Equal(s.Selector, o.Selector) &&
		slices.Equal(s.ServiceAccounts, o.ServiceAccounts) && s.Created.Equal(o.Created) &&
		s.PublishNotReady == o.PublishNotReady && s.NodeLocal == o.NodeLocal && s.TrafficDist == o.TrafficDist &&
		s.SendDraining == o.SendDraining &&
		maps.EqualFunc(s.Clusters, o.Clusters, (*Service).Equal)
}

// Equal reports whether two endpoints are equal in every field.
func (e *Endpoint) Equal(o *Endpoint) bool {
	if e == o || e == nil || o == nil {
		return e == o
	}
	return e.Address == o.Address && e.Port == o.Port && e.ServicePort == o.ServicePort && maps.Equal(e.Labels, o.Labels) &&
		e.Identity == o.Identity && e.Locality == o.Locality && e.Network == o.Network && e.Cluster == o.Cluster && e.Weight == o.Weight &&
		e.TLSMode == o.TLSMode && e.Health == o.Health && e.HealthKnown == o.HealthKnown && e.NodeName == o.NodeName &&
		e.HostName == o.HostName && e.SubDomain == o.SubDomain && e.SameCluster == o.SameCluster &&
		e.Workload == o.Workload && e.Namespace == o.Namespace &&
		e.CanonicalName == o.CanonicalName && e.CanonicalRevision == o.CanonicalRevision
}

// Equal reports whether two workloads are equal in every field.
func (w *Workload) Equal(o *Workload) bool {
	if w == o || w == nil || o == nil {
		return w == o
	}
	return w.WorkloadKey == o.WorkloadKey && slices.Equal(w.Addresses, o.Addresses) && maps.Equal(w.Labels, o.Labels) &&
		w.ServiceAccount == o.ServiceAccount && w.Identity == o.Identity && w.Locality == o.Locality && w.NodeName == o.NodeName &&
		w.Network == o.Network && w.Cluster == o.Cluster && w.HostNetwork == o.HostNetwork && w.Ready == o.Ready && w.TLSMode == o.TLSMode &&
		w.Owner == o.Owner && maps.Equal(w.Ports, o.Ports) && w.Weight == o.Weight && w.Created.Equal(o.Created)
}

// ReuseEndpoints returns next, with each endpoint replaced by an equal one of old, so that equal content stays one
// pointer. If the lists are equal it returns old, and true. Both lists are sorted by CompareEndpoints. next is
// modified.
func ReuseEndpoints(old, next []*Endpoint) (reused []*Endpoint, same bool) {
	i := 0
	for j := 0; j < len(next); {
		// Endpoints that compare as equal may repeat.
		e, first := next[j], j
		for j < len(next) && CompareEndpoints(next[j], e) == 0 {
			j++
		}
		for i < len(old) && CompareEndpoints(old[i], e) < 0 {
			i++
		}
		from := i
		for i < len(old) && CompareEndpoints(old[i], e) == 0 {
			i++
		}
		reuseRun(old[from:i], next[first:j])
	}
	if slices.Equal(old, next) {
		return old, true
	}
	return next, false
}

// reuseRun is ReuseEndpoints for endpoints that compare as equal. It searches them one by one, because they are few, or
// identical.
func reuseRun(old, next []*Endpoint) {
	switch {
	case len(old) == 0:
		return
	case len(old) == 1 && len(next) == 1:
		if old[0].Equal(next[0]) {
			next[0] = old[0]
		}
		return
	}
	byWorkload := make(map[string][]*Endpoint, len(old))
	for _, e := range old {
		if all := byWorkload[e.Workload]; len(all) == 0 || all[len(all)-1] != e {
			byWorkload[e.Workload] = append(all, e)
		}
	}
	var last, reused *Endpoint
	for j, e := range next {
		if e != last {
			last, reused = e, e
			if i := slices.IndexFunc(byWorkload[e.Workload], e.Equal); i >= 0 {
				reused = byWorkload[e.Workload][i]
			}
		}
		next[j] = reused
	}
}
