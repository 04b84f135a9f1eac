package gatewayapi

import (
	"cmp"
	"hash/maphash"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// Options configures the stage.
type Options struct {
	Domain string        // DNS domain of the cluster's services, such as cluster.local
	Limits limits.Limits // limits of regular expressions

	Controller string // controller of the GatewayClasses that are served; default istio.io/gateway-controller
	Class      string // default GatewayClass, which is known without an object; default istio
	// SetHosts says that ServiceImports have hosts of their own, in clusterset.local.
	SetHosts bool
	// Alpha puts the alpha parts of the Gateway API into force: XBackendTrafficPolicies.
	Alpha bool
}

// New returns the stage.
func New(o Options) derive.Stage {
	o.Controller, o.Class = cmp.Or(o.Controller, names.GatewayController), cmp.Or(o.Class, "istio")
	s := newState(o)
	return derive.Stage{Name: "gatewayapi", Kinds: inputs(), Derive: func(in derive.Input) derive.Derivation {
		if in.Anew {
			s = newState(o)
		}
		return derived(o, s, in)
	}}
}

// inputs are the kinds that the stage derives from.
func inputs() []*kinds.Kind {
	return slices.Concat([]*kinds.Kind{kinds.GatewayClass, kinds.ReferenceGrant, kinds.KubeGateway, kinds.ListenerSet},
		backendPolicyKinds(), routeKinds())
}

// routeKinds are the kinds of routes, in the order of precedence among routes of the same age and name.
func routeKinds() []*kinds.Kind {
	return []*kinds.Kind{kinds.HTTPRoute, kinds.GRPCRoute, kinds.TLSRoute, kinds.TCPRoute, kinds.UDPRoute}
}

// state is the state that the stage keeps between runs: the results, and indexes to find what a change affects.
type state struct {
	objects map[*kinds.Kind]map[kinds.Key]*kinds.Object // objects of the stage's kinds
	looked  map[kinds.Key]*kinds.Object                 // other objects that were looked up; nil if there is none of that key
	units   map[kinds.Key]*unit
	readers map[cell]map[*unit]struct{}

	classes map[string]string                         // controllers of GatewayClasses, by name
	grants  map[string]map[kinds.Key]*kinds.Object    // ReferenceGrants by namespace
	sets    map[kinds.Key]map[kinds.Key]*kinds.Object // ListenerSets by the Gateway that they name
	streams map[connections][]*claimant               // TLSRoutes and TCPRoutes

	gateways  map[kinds.Key]*gateway
	certified map[kinds.Key]*gateway // Gateways with a certificate for backends
	routes    map[kinds.Key]*route
	hosts     map[target]*host
	services  map[string]map[*host]struct{} // hosts in the mesh, by the service's host

	policies map[kinds.Key]*backendPolicy
	targeted map[kinds.Key]*targetedService
	backends map[kinds.Key]map[kinds.Key]int // number of routes from a Gateway to a Service
}

func newState(o Options) *state {
	s := &state{
		objects: map[*kinds.Kind]map[kinds.Key]*kinds.Object{}, looked: map[kinds.Key]*kinds.Object{}, units: map[kinds.Key]*unit{},
		readers: map[cell]map[*unit]struct{}{},
		classes: o.knownClasses(), grants: map[string]map[kinds.Key]*kinds.Object{}, sets: map[kinds.Key]map[kinds.Key]*kinds.Object{},
		streams:  map[connections][]*claimant{},
		gateways: map[kinds.Key]*gateway{}, certified: map[kinds.Key]*gateway{}, routes: map[kinds.Key]*route{},
		hosts: map[target]*host{}, services: map[string]map[*host]struct{}{},
		policies: map[kinds.Key]*backendPolicy{}, targeted: map[kinds.Key]*targetedService{}, backends: map[kinds.Key]map[kinds.Key]int{},
	}
	for _, kind := range inputs() {
		s.objects[kind] = map[kinds.Key]*kinds.Object{}
	}
	return s
}

// run is one call of Derive. Each step makes the results that are due, and marks results of later steps as due.
type run struct {
	*state
	o   Options
	in  derive.Input
	out derive.Derivation

	unitsDue        map[*kinds.Kind]map[kinds.Key]bool // units to make; false if only a change of more than the status requires it
	hostsDue        map[*host]bool
	streamsDue      map[connections]bool
	partsDue        map[*route]bool // parts of single routes
	statusesDue     map[*gateway]bool
	certificatesDue map[kinds.Key]bool // client certificates of Gateways
	targetedDue     map[kinds.Key]bool // DestinationRules of services
	policiesDue     map[kinds.Key]bool // statuses of policies
	led             map[lead]bool      // changed pairs of Gateway and Service, and whether there were routes before
	idle            []cell             // cells that had no reader when last seen

	merges map[uint64][]*merged // by the hash of their routes
	seed   maphash.Seed         // of these hashes
}

func derived(o Options, s *state, in derive.Input) derive.Derivation {
	r := &run{
		state: s, o: o, in: in, out: derive.Derivation{Parts: map[any]*derive.Part{}},
		unitsDue: map[*kinds.Kind]map[kinds.Key]bool{}, hostsDue: map[*host]bool{}, streamsDue: map[connections]bool{},
		partsDue: map[*route]bool{}, statusesDue: map[*gateway]bool{},
		certificatesDue: map[kinds.Key]bool{}, targetedDue: map[kinds.Key]bool{}, policiesDue: map[kinds.Key]bool{}, led: map[lead]bool{},
		merges: map[uint64][]*merged{}, seed: maphash.MakeSeed(),
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
	r.makeTargeted()
	r.makePolicyStatuses()
	r.forget()
	return r.out
}

// take stores a change and marks the results that it affects as due.
func (r *run) take(c kinds.Change) {
	if c.Cluster != "" {
		return // objects of remote clusters belong to their own control planes
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
	r.changed(cell{cellObject, c.Key})
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
			r.changed(cell{cellExistence, c.Key})
		}
		r.due(c.Key, false)
	default:
		if r.objects[c.Kind] != nil {
			r.due(c.Key, false)
		}
	}
}

// due marks a unit as due. If rebuild is false, it is made only if its object has changed in more than its status.
func (r *run) due(key kinds.Key, rebuild bool) {
	r.unitsDue[key.Kind][key] = r.unitsDue[key.Kind][key] || rebuild
}

// put sets a part of the derivation. An empty part is removed.
func (r *run) put(key any, p derive.Part) {
	if len(p.Objects)+len(p.Findings)+len(p.Statuses)+len(p.Shared) == 0 {
		r.out.Parts[key] = nil
		return
	}
	r.out.Parts[key] = &p
}

// finding returns a finding about an object.
func finding(o *kinds.Object, severity diag.Severity, code, field, fix, message string) diag.Diagnostic {
	return diag.Diagnostic{Severity: severity, Code: code, Object: o.String(), Field: field, Message: message, Fix: fix}.At(o.Position)
}

// older orders objects by age, then by namespace and name: the first of several that compete takes precedence.
func older(a, b *kinds.Object) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return compareNames(a.Key, b.Key)
}

// compareNames orders by "namespace/name" as a text, as the Gateway API says: a-b/x is before a/x.
func compareNames(a, b kinds.Key) int {
	if a.Namespace == b.Namespace {
		return cmp.Compare(a.Name, b.Name)
	}
	return cmp.Compare(a.Namespace+"/", b.Namespace+"/")
}

// compareKinds orders routes of the same age and name.
func compareKinds(a, b *kinds.Object) int {
	return cmp.Compare(slices.Index(routeKinds(), a.Kind), slices.Index(routeKinds(), b.Kind))
}
