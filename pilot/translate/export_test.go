package translate

import (
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Changes gives what the newest Snapshot changed, as everything that is kept will learn of it: a test may hide some.
func (t *Translator) Changes() *scope.Changes { return &t.newest.Index.Changes }

// Assignments names the assignments in which a cohort sees the endpoints of a service.
func (t *Translator) Assignments(s *snapshot.Snapshot, c cohort.Proxy, key registry.ServiceKey) []string {
	v := t.view(s)
	svc := v.Service(key)
	if svc == nil || v.Index.Of(c.Scope.Namespace, c.Scope.Sidecar).ServiceByHost(key.Host) != svc {
		return nil
	}
	var list []string
	passes := passesThrough(c.Scope)
	for _, p := range svc.Ports {
		for subset := range subsets(v.rules(c.Scope, svc)) {
			list = append(list, names.Cluster(names.Outbound, p.Number, subset, svc.Host))
			if passes {
				list = append(list, names.SNICluster(p.Number, subset, svc.Host))
			}
		}
	}
	return list
}
