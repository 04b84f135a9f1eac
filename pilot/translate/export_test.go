package translate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Changes gives what the newest Snapshot changed, as everything that is kept will learn of it: a test may hide some.
func (t *Translator) Changes() *scope.Dirty { return t.history.changes[len(t.history.changes)-1].Dirty }

// Assignments names the assignments in which a cohort sees the endpoints of a service.
func (t *Translator) Assignments(s *snapshot.Snapshot, k cohort.Key, key registry.ServiceKey) []string {
	c := k.Inputs()
	v := t.view(s)
	svc := v.Service(key)
	if svc == nil || v.Index.ScopeOf(c.Scope.Namespace, c.Scope.Sidecar).ServiceByHost(key.Host) != svc {
		return nil
	}
	var list []string
	passes := hasAutoPassthrough(c.Scope)
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

// CheckPartitions says which resource of a cohort two units of its recipe claim, or none: a unit that is made again
// would take it from the other. routes are the names of its route configurations.
func (t *Translator) CheckPartitions(s *snapshot.Snapshot, k cohort.Key, routes []string) string {
	c := k.Inputs()
	v := t.view(s)
	var hosts []string
	for svc := range v.EachService {
		hosts = append(hosts, svc.Host)
	}
	for i := range v.Index.ScopeOf(c.Scope.Namespace, c.Scope.Sidecar).Egress {
		for vs := range v.Index.ScopeOf(c.Scope.Namespace, c.Scope.Sidecar).Egress[i].VirtualServices {
			hosts = append(hosts, vs.Hosts...)
		}
	}
	if d := checkPartitions(v, clusterGenerator(c.Scope), hosts); d != "" {
		return d
	}
	if c.Scope.Type == node.Router {
		for _, name := range routes {
			if d := checkPartitions(v, gatewayHostGenerator(v, c.Scope, name), v.gatewayRouteBuilder(c.Scope, name).allHosts()); d != "" {
				return d
			}
		}
		return ""
	}
	l := v.newOutboundBuilder(c)
	for i := range l.scope.Egress {
		l.addEgress(l.egressBuilder(&l.scope.Egress[i]), l.scope.Egress[i].Services)
	}
	if d := checkPartitions(v, listenerGenerator(c), append(slices.Collect(maps.Keys(l.builders)), affectedBindKeys(c, &v.Dirty)...)); d != "" {
		return d
	}
	for _, name := range routes {
		if _, ok := v.sidecarRouteBuilder(c.Scope, name); ok {
			if d := checkPartitions(v, virtualHostGenerator(c.Scope, name), hosts); d != "" {
				return d
			}
		}
	}
	return ""
}

func checkPartitions[U comparable](v *view, r generator[U], units []U) string {
	whole, owner := r.generateAll(v), map[string]U{}
	together := r.partitions(v, units)
	done := map[U]bool{}
	for _, u := range units {
		if done[u] {
			continue
		}
		done[u] = true
		made := r.partitions(v, []U{u})(u)
		if !slices.EqualFunc(together(u), made, func(a, b *envoy.Resource) bool { return a.Name == b.Name && a.Version == b.Version }) {
			return fmt.Sprintf("%v is made otherwise by itself than with others", u)
		}
		for _, m := range made {
			if other, ok := owner[m.Name]; ok {
				return fmt.Sprintf("%s is of %v and of %v", m.Name, other, u)
			}
			owner[m.Name] = u
		}
		if has := slices.Collect(whole.byPartition.Where(r.locate(u))); !slices.EqualFunc(has, made, func(a, b *envoy.Resource) bool { return a.Name == b.Name }) {
			return fmt.Sprintf("%v has %d resources, and %d are made of it", u, len(has), len(made))
		}
	}
	return ""
}
