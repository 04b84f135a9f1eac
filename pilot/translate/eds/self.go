package eds

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// The assignment of names.SelfCluster has the replicas of the proxy, with their zones. Envoy calls none of them. It
// compares how its own replicas and the endpoints of another cluster are spread over the zones, and so works out how
// many of its requests may stay in its zone without overloading the endpoints there.
//
// Replicas share the assignment. Proxies of other workloads in the same place share all other assignments with them:
// their Sets differ in one resource.

// selfPart identifies the Set of the assignment of names.SelfCluster.
type selfPart struct{ by cohort.Self }

// withSelfPart identifies the Set of the assignments that depend on the location of the proxy, with the assignment of
// names.SelfCluster.
type withSelfPart struct {
	place place
	by    cohort.Self
}

// self returns the Set of the assignment of names.SelfCluster.
func (m *Assignments) self(v *view.View, c cohort.Handle[cohort.Client], self cohort.Self) *engine.Version {
	k := engine.Key{Type: envoy.EndpointType, Client: c.Weak(), Part: selfPart{self}}
	return engine.GetByName(m.cache, k, v.Revision, m.selfNames, engine.ByName{
		Affected: func(d *scope.Dirty, _ *envoy.Names) []string {
			if slices.Contains(d.Hosts, self.Host) || slices.Contains(d.Endpoints, self.Host) {
				return []string{names.SelfCluster}
			}
			return nil
		},
		Build: func(string) *envoy.Resource {
			if k := m.selfKey(v, c.Value(), self); k.service != nil {
				return m.assignments.Get(k)
			}
			return nil
		},
	})
}

// selfKey returns the key of the assignment of names.SelfCluster as a client sees it. It has no service if the client
// does not see the one of its workload. As in istiod, no DestinationRule applies.
func (m *Assignments) selfKey(v *view.View, c cohort.Client, self cohort.Self) assignmentKey {
	k := assignmentKey{name: names.SelfCluster, self: self}
	s := v.ScopeOf(c.Namespace, c.Sidecar).ServiceByHost(self.Host)
	if s == nil || s.Port(self.Port) == nil {
		return k
	}
	k.reach(m, v, c, s, s.Port(self.Port).Name)
	k.tls = m.hooks.Choice(v.Mesh(), s, traffic.Policy{}).TLS
	return k
}
