package translate

import (
	"fmt"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/gateway"
	"github.com/istiod-lite/istiod-lite/pilot/translate/nds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Changes returns what the newest Snapshot changed, as the caches will see it. A test may hide some of it.
func (t *Translator) Changes() *scope.Dirty {
	d, _ := t.cache.Since(t.newest.index.Revision-1, t.newest.index.Revision)
	return d
}

// Assignments returns the names of the assignments in which a cohort sees the endpoints of a service.
func (t *Translator) Assignments(s *snapshot.Snapshot, k cohort.Key, key registry.ServiceKey) []string {
	c, v := k.Inputs(), t.state(s).view
	svc := s.Service(key)
	if svc == nil || v.ScopeOf(c.Client.Namespace, c.Client.Sidecar).ServiceByHost(key.Host) != svc {
		return nil
	}
	var list []string
	passes := gateway.HasAutoPassthrough(c.Client)
	for _, p := range svc.Ports {
		for subset := range v.MergedRules(c.Client, svc).SubsetNames {
			list = append(list, names.Cluster(names.Outbound, p.Number, subset, svc.Host))
			if passes {
				list = append(list, names.SNICluster(p.Number, subset, svc.Host))
			}
		}
	}
	if c.Self.Host == svc.Host {
		list = append(list, names.SelfCluster)
	}
	return list
}

// CheckPartitions returns an error text where a resource of a cohort belongs to two partitions of its generator, or to
// none: then generating one partition again would delete a resource of the other. routes are the names of the cohort's
// route configurations.
func (t *Translator) CheckPartitions(s *snapshot.Snapshot, k cohort.Key, routes []string) string {
	c, v := k.Inputs(), t.state(s).view
	clusters, listeners, routing := t.generators()
	var hosts []string
	for svc := range s.EachService {
		hosts = append(hosts, svc.Host)
	}
	for i := range v.ScopeOf(c.Client.Namespace, c.Client.Sidecar).Egress {
		for vs := range v.ScopeOf(c.Client.Namespace, c.Client.Sidecar).Egress[i].VirtualServices {
			hosts = append(hosts, vs.Hosts...)
		}
	}
	if d := checkPartitions(clusters.Outbound(v, c.Client), hosts); d != "" {
		return d
	}
	if d := checkPartitions(t.types[envoy.NameTableType].(*nds.Names).Hosts(v, c.Client), hosts); d != "" {
		return d
	}
	if c.Client.Type == node.Router {
		for _, name := range routes {
			if d := checkPartitions(routing.GatewayHosts(v, c.Client, name), gatewayHosts(v, c.Client, name)); d != "" {
				return d
			}
		}
		return ""
	}
	outbound := listeners.Outbound(v, c)
	if d := checkPartitions(outbound, append(bindKeys(outbound), outbound.Affected(&t.state(s).index.Dirty)...)); d != "" {
		return d
	}
	for _, name := range routes {
		if g, ok := routing.SidecarHosts(v, c.Client, name); ok {
			if d := checkPartitions(g, hosts); d != "" {
				return d
			}
		}
	}
	return ""
}

func checkPartitions[P comparable](g engine.Generator[P], partitions []P) string {
	whole, owner := g.Generate(), map[string]P{}
	generate := g.Partitions(partitions)
	done := map[P]bool{}
	for _, p := range partitions {
		if done[p] {
			continue
		}
		done[p] = true
		generated := g.Partitions([]P{p})(p)
		if !slices.EqualFunc(generate(p), generated, func(a, b *envoy.Resource) bool { return a.Name == b.Name && a.Version == b.Version }) {
			return fmt.Sprintf("%v is generated otherwise by itself than with others", p)
		}
		for _, m := range generated {
			if other, ok := owner[m.Name]; ok {
				return fmt.Sprintf("%s belongs to %v and to %v", m.Name, other, p)
			}
			owner[m.Name] = p
		}
		if has := slices.Collect(whole.Located(g.Locate(p))); !slices.EqualFunc(has, generated, func(a, b *envoy.Resource) bool {
			return a.Name == b.Name
		}) {
			return fmt.Sprintf("%v has %d resources, and %d are generated for it", p, len(has), len(generated))
		}
	}
	return ""
}

// CachedResources returns the number of resources of the memo and of Sets in the cache.
func (t *Translator) CachedResources() int { return t.memo.Len() + t.CachedSets() }

// CachedSets returns the number of Sets in the cache.
func (t *Translator) CachedSets() int { return t.cache.Len() }

// Wildcard returns all resources of a type.
func (t *Translator) Wildcard(s *snapshot.Snapshot, c cohort.Key, typeURL string) envoy.Union {
	u, err := t.Get(s, c, typeURL, nil)
	if err != nil {
		panic(err)
	}
	return u
}

// Resource returns the resource of a name.
func (t *Translator) Resource(s *snapshot.Snapshot, c cohort.Key, typeURL, name string) *envoy.Resource {
	var interner envoy.NameInterner
	u, err := t.Get(s, c, typeURL, interner.Intern([]string{name}))
	if err != nil {
		panic(err)
	}
	return u.Get(name)
}
