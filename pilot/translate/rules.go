package translate

import (
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate/rds"
)

// Rules returns the rules of the routes of a virtual host, in the order that the routes have before patches, from the
// resource of its route configuration. It returns nil if the memo has dropped the host or if it has no VirtualService.
func (t *Translator) Rules(r *envoy.Resource, host string) (rules []rds.Made) {
	routes, want, seen := t.types[envoy.RouteType].(*rds.Routes), envoy.HostName(r.Name, host), map[*envoy.Resource]bool{}
	var visit func(*envoy.Resource)
	visitNamed := func(s *envoy.Set) {
		if s != nil {
			for r := range s.All {
				if r.Name == want {
					visit(r)
				}
			}
		}
	}
	visit = func(r *envoy.Resource) {
		if r == nil || seen[r] || rules != nil {
			return
		}
		seen[r] = true
		visitNamed(r.Hosts)
		key := t.memo.KeyOf(r)
		if key == nil {
			return
		}
		if r.Name == want {
			rules, _ = routes.Rules(key)
		}
		p := partsOf(key) // a patched resource is made from another one
		for _, r := range p.resources {
			visit(r)
		}
		for _, s := range p.sets {
			visitNamed(s)
		}
	}
	visit(r)
	return rules
}

// RuleOrigin returns the VirtualService from which a rule of a VirtualService is, once its delegates are merged in, and
// the place of the rule there.
func (t *Translator) RuleOrigin(s *snapshot.Snapshot, k kinds.Key, rule int) (kinds.Key, int) {
	return t.state(s).index.RuleOrigin(k, rule)
}
