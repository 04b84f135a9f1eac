package gatewayapi

import (
	"maps"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// Options of the stage.
type Options struct {
	Domain string        // of the cluster's services, such as cluster.local
	Limits limits.Limits // of regular expressions
}

// stage keeps what it made of objects between runs. Each run checks whether what it kept is what it would make, so a
// run that failed half way leaves nothing wrong.
type stage struct {
	o        Options
	number   uint64 // of the run
	answers  map[kinds.Key]*answer
	byKind   map[*kinds.Kind][]*kinds.Object
	grants   map[string]*grants
	gateways map[kinds.Key]*gateway
	routes   map[*kinds.Object]*route
	all      []*route // of the last run
	hosts    map[target]*host
	classes  map[string]*class

	made     [2][]derive.Derived // by the last run that ended, and by that before it
	statuses int                 // how many the last run made

	backendTLS map[kinds.Key]*backendTLS
	uses       map[*kinds.Object]*routeUse
}

// New returns the stage.
func New(o Options) derive.Stage {
	s := &stage{o: o, answers: map[kinds.Key]*answer{}, byKind: map[*kinds.Kind][]*kinds.Object{}, routes: map[*kinds.Object]*route{}, hosts: map[target]*host{}}
	return derive.Stage{
		Name:   "gatewayapi",
		Kinds:  []*kinds.Kind{kinds.GatewayClass, kinds.ReferenceGrant, kinds.KubeGateway, kinds.ListenerSet, kinds.HTTPRoute, kinds.GRPCRoute, kinds.TLSRoute, kinds.TCPRoute, kinds.BackendTLSPolicy},
		Derive: s.derive,
	}
}

// run is one call of Derive.
type run struct {
	*stage
	in       derive.Input
	asked    int // how many keys were looked up
	grants   map[string]*grants
	classes  map[string]*class
	gateways map[kinds.Key]*gateway
	attached map[*listener]int32
	out      derive.Derivation
}

func (s *stage) derive(in derive.Input) derive.Derivation {
	r := &run{stage: s, in: in, attached: map[*listener]int32{}}
	s.number++
	for kind, list := range s.byKind {
		clear(list)
		s.byKind[kind] = list[:0]
	}
	for _, o := range in.Objects {
		if o.Key.Cluster == "" { // those of remote clusters are their own control planes'
			r.byKind[o.Kind] = append(r.byKind[o.Kind], o)
		}
	}
	const more = 64 // than in the last run
	r.out.Objects, r.out.Statuses = s.made[1][:0], make([]*derive.Status, 0, s.statuses+more)
	r.grants = s.sortGrants(r.byKind[kinds.ReferenceGrant])
	s.grants = r.grants
	r.readClasses()
	r.makeGateways()
	all := r.makeRoutes()
	r.makeHosts(all)
	for _, g := range r.sortedGateways() {
		g.statuses(r)
	}
	for _, x := range all {
		x.addStatus(r)
	}
	r.makeBackendTLS()
	if len(s.answers) > r.asked {
		maps.DeleteFunc(s.answers, func(_ kinds.Key, a *answer) bool { return a.run != s.number })
	}
	clear(r.out.Objects[len(r.out.Objects):cap(r.out.Objects)])
	s.made = [2][]derive.Derived{r.out.Objects, s.made[0]}
	s.statuses = len(r.out.Statuses)
	return r.out
}

// found adds findings.
func (r *run) found(list ...diag.Diagnostic) { r.out.Findings = append(r.out.Findings, list...) }

// finding returns one about an object.
func finding(o *kinds.Object, severity diag.Severity, code, field, fix, message string) diag.Diagnostic {
	return diag.Diagnostic{Severity: severity, Code: code, Object: o.String(), Field: field, Message: message, Fix: fix}.At(o.Position)
}

// sortedGateways returns the Gateways that are this controller's, in the order of the input.
func (r *run) sortedGateways() (list []*gateway) {
	for _, o := range r.byKind[kinds.KubeGateway] {
		if g := r.gateways[o.Key]; g != nil {
			list = append(list, g)
		}
	}
	return list
}

// older orders objects by age, then by namespace and name: of two that compete the first counts.
func older(a, b *kinds.Object) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return compareNames(a, b)
}

func compareNames(a, b *kinds.Object) int {
	return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
}
