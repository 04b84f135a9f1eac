package gatewayapi

import (
	"cmp"
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

// New returns the stage.
func New(o Options) derive.Stage {
	s := newState()
	return derive.Stage{Name: "gatewayapi", Kinds: inputs(), Derive: func(in derive.Input) derive.Derivation {
		if in.Anew {
			s = newState()
		}
		return derived(o, s, in)
	}}
}

// inputs are the kinds that the stage derives from.
func inputs() []*kinds.Kind {
	return append([]*kinds.Kind{kinds.GatewayClass, kinds.ReferenceGrant, kinds.KubeGateway, kinds.ListenerSet, kinds.BackendTLSPolicy}, routeKinds()...)
}

// routeKinds are the kinds of routes. Of two routes of one age and name the one of the first kind comes first.
func routeKinds() []*kinds.Kind {
	return []*kinds.Kind{kinds.HTTPRoute, kinds.GRPCRoute, kinds.TLSRoute, kinds.TCPRoute, kinds.UDPRoute}
}

// state is what the stage keeps between runs: what it made, and how to find what a change concerns.
type state struct {
	objects map[*kinds.Kind]map[kinds.Key]*kinds.Object // of the stage's kinds
	looked  map[kinds.Key]*kinds.Object                 // others that were looked up; nil: there is none
	units   map[kinds.Key]*unit
	readers map[cell]map[*unit]struct{}

	classes map[string]string                         // controllers of GatewayClasses, by name
	grants  map[string]map[kinds.Key]*kinds.Object    // ReferenceGrants by namespace
	sets    map[kinds.Key]map[kinds.Key]*kinds.Object // ListenerSets by the Gateway that they name
	streams map[connections][]*claimant               // TLSRoutes and TCPRoutes

	gateways  map[kinds.Key]*gateway
	certified map[kinds.Key]*gateway // those with a certificate for backends
	routes    map[kinds.Key]*route
	hosts     map[target]*host
	services  map[string]map[*host]struct{} // hosts of the mesh, by the service's host

	policies map[kinds.Key]*backendTLS
	secured  map[kinds.Key]*securedService
	backends map[kinds.Key]map[kinds.Key]int // how many routes of a Gateway lead to a Service
}

func newState() *state {
	s := &state{
		objects: map[*kinds.Kind]map[kinds.Key]*kinds.Object{}, looked: map[kinds.Key]*kinds.Object{}, units: map[kinds.Key]*unit{}, readers: map[cell]map[*unit]struct{}{},
		classes: knownClasses(), grants: map[string]map[kinds.Key]*kinds.Object{}, sets: map[kinds.Key]map[kinds.Key]*kinds.Object{}, streams: map[connections][]*claimant{},
		gateways: map[kinds.Key]*gateway{}, certified: map[kinds.Key]*gateway{}, routes: map[kinds.Key]*route{}, hosts: map[target]*host{}, services: map[string]map[*host]struct{}{},
		policies: map[kinds.Key]*backendTLS{}, secured: map[kinds.Key]*securedService{}, backends: map[kinds.Key]map[kinds.Key]int{},
	}
	for _, kind := range inputs() {
		s.objects[kind] = map[kinds.Key]*kinds.Object{}
	}
	return s
}

// run is one call of Derive. Each of its steps makes again what is due, and says what is due in later steps.
type run struct {
	*state
	o   Options
	in  derive.Input
	out derive.Derivation

	unitsDue        map[*kinds.Kind]map[kinds.Key]bool // false: unless the object says the same but for its status
	hostsDue        map[*host]bool
	streamsDue      map[connections]bool
	partsDue        map[*route]bool // what is made of routes alone
	statusesDue     map[*gateway]bool
	certificatesDue map[kinds.Key]bool // Gateways
	securedDue      map[kinds.Key]bool // services
	policiesDue     map[kinds.Key]bool // statuses
	led             map[lead]bool      // whether there were routes before, where that may have changed
	idle            []cell             // that had no reader when they were seen
}

func derived(o Options, s *state, in derive.Input) derive.Derivation {
	r := &run{
		state: s, o: o, in: in, out: derive.Derivation{Parts: map[any]*derive.Part{}},
		unitsDue: map[*kinds.Kind]map[kinds.Key]bool{}, hostsDue: map[*host]bool{}, streamsDue: map[connections]bool{}, partsDue: map[*route]bool{}, statusesDue: map[*gateway]bool{},
		certificatesDue: map[kinds.Key]bool{}, securedDue: map[kinds.Key]bool{}, policiesDue: map[kinds.Key]bool{}, led: map[lead]bool{},
	}
	for _, kind := range inputs() {
		r.unitsDue[kind] = map[kinds.Key]bool{}
	}
	for _, c := range in.Changed {
		r.take(c)
	}
	r.makeGateways()
	r.makeSets()
	r.makeRoutes()
	r.makeHosts()
	r.makeStreams()
	r.makeRouteParts()
	r.makeGatewayStatuses()
	r.makePolicies()
	r.makeSecured()
	r.makePolicyStatuses()
	r.forget()
	return r.out
}

// take takes a change, and finds what is due by it.
func (r *run) take(c kinds.Change) {
	if c.Cluster != "" {
		return // those of remote clusters are their own control planes'
	}
	var was *kinds.Object
	if of, is := r.objects[c.Kind]; is {
		if was = of[c.Key]; c.Object == nil {
			delete(of, c.Key)
		} else {
			of[c.Key] = c.Object
		}
	} else if was, is = r.looked[c.Key]; is {
		r.looked[c.Key] = c.Object
	}
	if was == c.Object {
		return
	}
	r.changed(cell{theObject, c.Key})
	switch c.Kind {
	case kinds.GatewayClass:
		r.takeClass(c)
	case kinds.ReferenceGrant:
		r.takeGrant(c)
	case kinds.ListenerSet:
		r.takeSet(was, c.Object)
		r.due(c.Key, false)
	case kinds.KubeGateway:
		if was == nil || c.Object == nil {
			r.changed(cell{theExistence, c.Key})
		}
		r.due(c.Key, false)
	default:
		if r.objects[c.Kind] != nil {
			r.due(c.Key, false)
		}
	}
}

// due has a unit made again; without anew only if its object says something else.
func (r *run) due(key kinds.Key, anew bool) {
	r.unitsDue[key.Kind][key] = r.unitsDue[key.Kind][key] || anew
}

// put sets a part of the derivation. One that has nothing is none.
func (r *run) put(key any, p derive.Part) {
	if len(p.Objects)+len(p.Findings)+len(p.Statuses)+len(p.Shared) == 0 {
		r.out.Parts[key] = nil
		return
	}
	r.out.Parts[key] = &p
}

// finding returns one about an object.
func finding(o *kinds.Object, severity diag.Severity, code, field, fix, message string) diag.Diagnostic {
	return diag.Diagnostic{Severity: severity, Code: code, Object: o.String(), Field: field, Message: message, Fix: fix}.At(o.Position)
}

// older orders objects by age, then by namespace and name: of two that compete the first counts.
func older(a, b *kinds.Object) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return compareNames(a.Key, b.Key)
}

// compareNames orders by "namespace/name" as a text, as the Gateway API has it: a-b/x is before a/x.
func compareNames(a, b kinds.Key) int {
	return cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
}

// compareKinds orders routes of one age and name.
func compareKinds(a, b *kinds.Object) int {
	return cmp.Compare(slices.Index(routeKinds(), a.Kind), slices.Index(routeKinds(), b.Kind))
}
