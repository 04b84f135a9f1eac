package scope

import (
	"fmt"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Observed returns the Index with each look-up in its tables, and in those of its Snapshot, reported to o. It has cached
// nothing of earlier look-ups.
func (x *Index) Observed(o snapshot.Observer) *Index {
	t := x.tables
	t.rules = snapshot.Observe(o, "rules", t.rules)
	t.partialRules = snapshot.Observe(o, "partialRules", t.partialRules)
	t.rulesWithSelector = snapshot.Observe(o, "rulesWithSelector", t.rulesWithSelector)
	t.virtualServices = snapshot.Observe(o, "virtualServices", t.virtualServices)
	t.mesh = snapshot.Observe(o, "mesh", t.mesh)
	t.meshHosts = snapshot.Observe(o, "meshHosts", t.meshHosts)
	t.partialMeshHosts = snapshot.Observe(o, "partialMeshHosts", t.partialMeshHosts)
	t.meshDestinations = snapshot.Observe(o, "meshDestinations", t.meshDestinations)
	t.gatewayHosts = snapshot.Observe(o, "gatewayHosts", t.gatewayHosts)
	t.partialGatewayHosts = snapshot.Observe(o, "partialGatewayHosts", t.partialGatewayHosts)
	t.gatewayDestinations = snapshot.Observe(o, "gatewayDestinations", t.gatewayDestinations)
	t.withSourceLabels = snapshot.Observe(o, "withSourceLabels", t.withSourceLabels)
	t.delegations = snapshot.Observe(o, "delegations", t.delegations)
	t.ports = snapshot.Observe(o, "ports", t.ports)
	t.aliasPorts = snapshot.Observe(o, "aliasPorts", t.aliasPorts)
	t.locations = snapshot.Observe(o, "locations", t.locations)
	t.selectors = snapshot.Observe(o, "selectors", t.selectors)
	t.aliases = snapshot.Observe(o, "aliases", t.aliases)
	return &Index{
		Snapshot: x.Snapshot.Observed(o), tables: t, Dirty: x.Dirty, clusterLocal: x.clusterLocal, observer: o,
		scopes: map[scopeKey]*Scope{},
	}
}

// ChangedRows calls visit for each row that differs between the tables of x and of a later Index. was or is is nil where
// there is no row.
func (x *Index) ChangedRows(later *Index, visit func(table string, was, is any)) {
	x.Snapshot.ChangedRows(later.Snapshot, visit)
	was, is := localityCounts{x.nodeLocal > 0, x.trafficDistribution > 0}, localityCounts{later.nodeLocal > 0, later.trafficDistribution > 0}
	if was != is {
		visit("localityCounts", was, is)
	}
	snapshot.ChangedRows("rules", x.rules, later.rules, visit)
	snapshot.ChangedRows("partialRules", x.partialRules, later.partialRules, visit)
	snapshot.ChangedRows("rulesWithSelector", x.rulesWithSelector, later.rulesWithSelector, visit)
	snapshot.ChangedRows("virtualServices", x.virtualServices, later.virtualServices, visit)
	snapshot.ChangedRows("mesh", x.mesh, later.mesh, visit)
	snapshot.ChangedRows("meshHosts", x.meshHosts, later.meshHosts, visit)
	snapshot.ChangedRows("partialMeshHosts", x.partialMeshHosts, later.partialMeshHosts, visit)
	snapshot.ChangedRows("meshDestinations", x.meshDestinations, later.meshDestinations, visit)
	snapshot.ChangedRows("gatewayHosts", x.gatewayHosts, later.gatewayHosts, visit)
	snapshot.ChangedRows("partialGatewayHosts", x.partialGatewayHosts, later.partialGatewayHosts, visit)
	snapshot.ChangedRows("gatewayDestinations", x.gatewayDestinations, later.gatewayDestinations, visit)
	snapshot.ChangedRows("withSourceLabels", x.withSourceLabels, later.withSourceLabels, visit)
	snapshot.ChangedRows("delegations", x.delegations, later.delegations, visit)
	snapshot.ChangedRows("ports", x.ports, later.ports, visit)
	snapshot.ChangedRows("aliasPorts", x.aliasPorts, later.aliasPorts, visit)
	snapshot.ChangedRows("locations", x.locations, later.locations, visit)
	snapshot.ChangedRows("selectors", x.selectors, later.selectors, visit)
	snapshot.ChangedRows("aliases", x.aliases, later.aliases, visit)
}

// localityCounts is a row that says whether any service is node-local, and whether any prefers close endpoints.
type localityCounts struct{ nodeLocal, trafficDistribution bool }

// observeCounts reports a look-up of localityCounts to the observer, if there is one.
func (x *Index) observeCounts() {
	if x.observer != nil {
		x.observer("localityCounts", func(any) bool { return true })
	}
}

// none reports whether a table has no row for which at is 0, so that a longer way need not be taken. In an observed Index
// it reports false without a look-up: the longer way reads no more than the result depends on.
func none[T any](x *Index, t frozen.Table[T], at func(T) int) bool {
	if x.observer != nil {
		return false
	}
	_, ok := t.First(at)
	return !ok
}

func serviceName(s *registry.Service) string { return s.Namespace + "/" + s.Host }

func (r rule) String() string            { return r.host + " of " + r.Key.String() }
func (v *VirtualService) String() string { return v.Key.String() }
func (l link) String() string            { return l.name + " of " + l.Key.String() }
func (g gatewayHost) String() string     { return g.gateway + " " + g.host + " of " + g.Key.String() }
func (d delegation) String() string      { return d.delegate + " of " + d.root.String() }
func (p port) String() string {
	return fmt.Sprintf("%d %s of %s", p.Number, p.Protocol, serviceName(p.service))
}
func (l location) String() string { return l.address + " of " + serviceName(l.service) }
func (s selector) String() string { return s.key + "=" + s.value + " of " + serviceName(s.service) }
func (a alias) String() string    { return a.target + " by " + serviceName(a.service) }
