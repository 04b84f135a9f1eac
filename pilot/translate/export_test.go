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

// Changes returns what the newest Snapshot changed, as the caches will see it. A test may hide some of it.
func (t *Translator) Changes() *scope.Dirty { return t.history.changes[len(t.history.changes)-1].Dirty }

// Assignments returns the names of the assignments in which a cohort sees the endpoints of a service.
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

// CheckPartitions returns an error text where a resource of a cohort belongs to two partitions of its generator, or to
// none: then generating one partition again would delete a resource of the other. routes are the names of the cohort's
// route configurations.
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

func checkPartitions[P comparable](v *view, g generator[P], partitions []P) string {
	whole, owner := g.generateAll(v), map[string]P{}
	generate := g.partitions(v, partitions)
	done := map[P]bool{}
	for _, p := range partitions {
		if done[p] {
			continue
		}
		done[p] = true
		generated := g.partitions(v, []P{p})(p)
		if !slices.EqualFunc(generate(p), generated, func(a, b *envoy.Resource) bool { return a.Name == b.Name && a.Version == b.Version }) {
			return fmt.Sprintf("%v is generated otherwise by itself than with others", p)
		}
		for _, m := range generated {
			if other, ok := owner[m.Name]; ok {
				return fmt.Sprintf("%s belongs to %v and to %v", m.Name, other, p)
			}
			owner[m.Name] = p
		}
		if has := slices.Collect(whole.byPartition.Where(g.locate(p))); !slices.EqualFunc(has, generated, func(a, b *envoy.Resource) bool { return a.Name == b.Name }) {
			return fmt.Sprintf("%v has %d resources, and %d are generated for it", p, len(has), len(generated))
		}
	}
	return ""
}
