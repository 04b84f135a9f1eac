package session

import (
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/diff"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// takeInitial sets the resources that a resuming client has, if they are still in force there.
func (s *Session) takeInitial(w *watch, v wire.InitialVersions) {
	w.initial = true
	switch {
	case !s.divided:
	case w.kind.Divisible:
		v = s.initialHeads(w.names, v)
	case w.kind.Part:
		v = s.initialHosts(v)
	}
	if w.whole() {
		w.held, w.shared = v.Union(), v.Shared
		return
	}
	var clusters envoy.Union
	if c := s.find(envoy.ClusterType); c != nil && w.kind.URL == envoy.EndpointType {
		clusters = c.held
	}
	if w.held.Shared = wire.SetOf(w.versionsOf(clusters, v.Own)); v.Shared != nil && w.names != nil {
		w.held.Own = w.held.Shared
		if diff.OnlyShared(clusters, w.names.Has) {
			w.held.Shared, w.shared = v.Shared.View(w.names, clusters.Shared, func(all []*envoy.Resource) *envoy.Set {
				return wire.SetOf(w.versionsOf(envoy.Union{Shared: clusters.Shared}, all))
			}), v.Shared
		} else {
			w.held.Shared = wire.SetOf(w.versionsOf(clusters, v.Shared.List))
		}
	}
	// The client has dropped assignments whose clusters have changed since.
	if w.kind.URL == envoy.EndpointType && len(s.changedClusters) > 0 {
		w.shared = nil
		for _, half := range []**envoy.Set{&w.held.Shared, &w.held.Own} {
			var gone []*envoy.Resource
			for name := range s.changedClusters {
				if r := (*half).Get(name); r != nil {
					gone = append(gone, r)
				}
			}
			*half = (*half).With(gone, nil)
		}
	}
}

// KeepsVersions reports whether the session may still have versions that the client named: it has not compared them, or
// the client has not acknowledged the removal of resources that are gone.
func (s *Session) KeepsVersions() bool {
	return slices.ContainsFunc(s.watches, func(w *watch) bool {
		return w.initial || len(w.pendingRemoval) > 0 || slices.ContainsFunc(w.sent, func(d delivery) bool { return len(d.removed) > 0 })
	})
}

// forgetInitial drops versions that the client named and that will not be compared.
func (w *watch) forgetInitial() {
	if w.initial {
		w.held, w.initial, w.shared = envoy.Union{}, false, nil
	}
}

// versionsOf returns the resources of list that the client subscribes to by name. It removes the suffix for the cluster
// from versions, and drops an assignment that was sent with another version of its cluster.
func (w *watch) versionsOf(clusters envoy.Union, list []*envoy.Resource) []*envoy.Resource {
	var kept []*envoy.Resource
	for _, r := range list {
		if !w.names.Has(r.Name) {
			continue
		}
		if w.kind.URL == envoy.EndpointType {
			own, ok := strings.CutSuffix(r.Version, diff.ClusterSuffix(clusters, r.Name))
			if !ok {
				continue
			}
			r = &envoy.Resource{Name: r.Name, Version: own}
		}
		kept = append(kept, r)
	}
	return kept
}
