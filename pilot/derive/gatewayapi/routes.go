package gatewayapi

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// route is the state of one HTTPRoute, GRPCRoute, TLSRoute, TCPRoute or UDPRoute.
type route struct {
	object  *kinds.Object
	looked  *lookups // set while it is being made
	parents []*parent
	lost    []lostHost // set while it is being made

	hostnames []gatewayv1.Hostname
	rules                // rules for Gateways; if inMesh is nil, also for the mesh
	inMesh    *rules     // rules for the mesh if they have a backend that Gateways may not use, or nil
	forMesh   bool       // whether the rules being made are for the mesh
	exempt    bool       // whether a rule names a backend that only rules for the mesh may use
	refused   *condition // first reason why it is not accepted; nil if it is
	expensive int        // RE2 instructions of all its expressions so far
	findings  []diag.Diagnostic
	gateways  []kinds.Key // Gateways of this controller that it names, directly or by their ListenerSets
	services  []kinds.Key // backends

	hosts   []placed  // hosts for which it has routes
	streams []*stream // streams of a TLSRoute or a TCPRoute at listeners
}

// rules are the translated rules of a route.
type rules struct {
	http       []httpRule                             // rules of HTTPRoutes and GRPCRoutes
	forwards   []*networkingv1alpha3.RouteDestination // backends of a TLSRoute's or a TCPRoute's rule
	unresolved *condition                             // last reference that cannot be resolved; nil if all are
}

// mesh returns the rules for clients in the mesh.
func (x *route) mesh() *rules {
	if x.inMesh != nil {
		return x.inMesh
	}
	return &x.rules
}

// makeRoutes makes the routes that are due, and moves them from their former hosts and streams to the new ones.
func (r *run) makeRoutes() {
	for _, kind := range routeKinds() {
		for key, rebuild := range r.unitsDue[kind] {
			o, x := r.objects[kind][key], r.routes[key]
			if !rebuild && x != nil && o != nil && sameButStatus(x.object, o, routeSpec) {
				x.object = o
				r.partsDue[x] = true
				continue
			}
			if x != nil {
				r.withdraw(x)
				delete(r.routes, key)
			}
			if o == nil {
				r.read(key, nil)
				r.put(key, derive.Part{})
				continue
			}
			l := &lookups{run: r}
			x = makeRoute(l, o)
			r.read(key, l)
			r.routes[key] = x
			r.place(x)
			r.partsDue[x] = true
		}
	}
}

// makeRouteParts makes the parts of routes that were made again or whose losses have changed.
func (r *run) makeRouteParts() {
	for x := range r.partsDue {
		if key := x.object.Key; r.routes[key] == x {
			r.put(key, x.part(r.o.Controller))
		}
	}
}

// part returns the part of the derivation that depends on this route alone, with its status by a controller.
func (x *route) part(controller string) derive.Part {
	lost := x.lostAtHosts()
	p := derive.Part{Findings: slices.Concat(x.findings, x.findingsOf(lost))}
	if s := x.makeStatus(lost, gatewayv1.GatewayController(controller)); s != nil {
		p.Statuses = []*derive.Status{s}
	}
	return p
}

func routeSpec(o *kinds.Object) any {
	switch route := o.Spec.(type) {
	case *gatewayv1.HTTPRoute:
		return &route.Spec
	case *gatewayv1.GRPCRoute:
		return &route.Spec
	case *gatewayv1.TLSRoute:
		return &route.Spec
	case *gatewayv1.TCPRoute:
		return &route.Spec
	case *gatewayv1.UDPRoute:
		return &route.Spec
	}
	return nil
}

func makeRoute(looked *lookups, o *kinds.Object) *route {
	x := &route{object: o, looked: looked}
	switch route := o.Spec.(type) {
	case *gatewayv1.HTTPRoute:
		x.hostnames = route.Spec.Hostnames
		x.attach(route.Spec.ParentRefs, route.Spec.Hostnames)
	case *gatewayv1.GRPCRoute:
		x.hostnames = route.Spec.Hostnames
		x.attach(route.Spec.ParentRefs, route.Spec.Hostnames)
	case *gatewayv1.TLSRoute:
		x.hostnames = route.Spec.Hostnames
		x.attach(route.Spec.ParentRefs, route.Spec.Hostnames)
	case *gatewayv1.TCPRoute:
		x.attach(route.Spec.ParentRefs, nil)
	case *gatewayv1.UDPRoute:
		x.refuseParents(route.Spec.ParentRefs)
	}
	x.makeRules()
	x.findUnreached()
	x.looked = nil
	return x
}

// makeRules translates the rules. A Gateway may use a backend of another namespace only with a ReferenceGrant. In the
// mesh a backend that is itself a parent of the route needs none. If that makes a difference, the rules are made twice.
func (x *route) makeRules() {
	inMesh := func(p *parent) bool { return p.mesh }
	x.forMesh = len(x.parents) > 0 && !slices.ContainsFunc(x.parents, func(p *parent) bool { return !p.mesh })
	x.rules = x.readRules()
	if x.exempt && !x.forMesh && slices.ContainsFunc(x.parents, inMesh) {
		other := &route{object: x.object, looked: x.looked, parents: x.parents, forMesh: true}
		of := other.readRules()
		x.inMesh = &of
	}
}

// readRules returns the rules for Gateways, or for the mesh if forMesh is set.
func (x *route) readRules() rules {
	switch route := x.object.Spec.(type) {
	case *gatewayv1.HTTPRoute:
		x.httpRules(route.Spec.Rules)
	case *gatewayv1.GRPCRoute:
		x.grpcRules(route.Spec.Rules)
	case *gatewayv1.TLSRoute:
		for i, rule := range route.Spec.Rules {
			x.forward(i, rule.BackendRefs)
		}
	case *gatewayv1.TCPRoute:
		for i, rule := range route.Spec.Rules {
			x.forward(i, rule.BackendRefs)
		}
	}
	if x.refused != nil {
		for i := range x.http {
			x.http[i].http = unserved(x.http[i].http)
		}
	}
	return x.rules
}

// backendKind is a kind of backend that routes may lead to.
type backendKind struct {
	group, kind string
	// kind of the referenced object, which may need a grant; nil if a reference names no object
	object *kinds.Kind
	host   func(domain, namespace, name string) string // returns the host of a backend
}

// backendKinds returns the kinds of backends. A ServiceImport stands for the Service of its name unless imported
// services have hosts of their own.
func (o Options) backendKinds() []backendKind {
	local := func(domain, namespace, name string) string { return name + "." + namespace + ".svc." + domain }
	imported := backendKind{kinds.ServiceImport.Group, kinds.ServiceImport.Name, kinds.Service, local}
	if o.SetHosts {
		imported.object = kinds.ServiceImport
		imported.host = func(_, namespace, name string) string { return clusterset.Host(name, namespace) }
	}
	return []backendKind{
		{"", "Service", kinds.Service, local}, {kinds.ServiceEntry.Group, "Hostname", nil, func(_, _, name string) string { return name }},
		imported,
	}
}

// kindOfBackend returns the kind of a backend, or nil if it is not supported.
func (x *route) kindOfBackend(ref gatewayv1.BackendObjectReference) *backendKind {
	for _, k := range x.looked.run.o.backendKinds() {
		if groupOr(ref.Group, "") == k.group && kindOr(ref.Kind, "Service") == k.kind {
			return &k
		}
	}
	return nil
}

// leadsTo records the backend of a route if it is an object.
func (x *route) leadsTo(b gatewayv1.BackendObjectReference) {
	k := x.kindOfBackend(b)
	if k == nil || k.object == nil {
		return
	}
	key := kinds.Key{Kind: k.object, Namespace: namespaceOr(b.Namespace, x.object.Namespace), Name: string(b.Name)}
	if !slices.Contains(x.services, key) {
		x.services = append(x.services, key)
	}
}

// Codes of findings about routes.
const (
	codeHTTP     = "HTTPRoute"
	codeGRPC     = "GRPCRoute"
	codeTLS      = "TLSRoute"
	codeTCP      = "TCPRoute"
	codeUDP      = "UDPRoute"
	codeConflict = "RouteConflict"
)

func (x *route) found(field string, severity diag.Severity, fix, message string) {
	code := codeHTTP
	switch x.object.Kind {
	case kinds.GRPCRoute:
		code = codeGRPC
	case kinds.TLSRoute:
		code = codeTLS
	case kinds.TCPRoute:
		code = codeTCP
	case kinds.UDPRoute:
		code = codeUDP
	}
	x.findings = append(x.findings, finding(x.object, severity, code, field, fix, message))
}

// unresolve records that a reference cannot be resolved. The status shows the last one.
func (x *route) unresolve(reason gatewayv1.RouteConditionReason, message, field, fix, effect string) {
	x.unresolved = &condition{metav1.ConditionFalse, string(reason), message}
	x.found(field, diag.Error, fix, message+": "+effect)
}

const refused500 = "its requests are answered with 500"

// refuse records why the route is not accepted. Requests that it matches are answered with 500, because another route
// might not enforce what this one does.
func (x *route) refuse(message, field, fix string) {
	if x.refused == nil {
		x.refused = &condition{metav1.ConditionFalse, string(gatewayv1.RouteReasonUnsupportedValue), field + ": " + message + "; " + fix}
	}
	x.found(field, diag.Error, fix, message+": the route is not accepted, and its requests are answered with 500")
}

// expression reports whether proxies accept a regular expression. If they do not, the route is not accepted.
func (x *route) expression(text, field string) bool {
	limits := x.looked.run.o.Limits
	n, err := safe.RegexSize(limits, text)
	if err != nil {
		x.refuse(err.Error(), field, "write an expression in the syntax of RE2")
		return false
	}
	if x.expensive += n; x.expensive > limits.RegexPerObject {
		x.refuse(fmt.Sprintf("the expressions of the route together need more than %d instructions", limits.RegexPerObject), field,
			"split the route, or use prefix matches")
		return false
	}
	return true
}

// backend returns the destination of a reference. It returns false if no part of the route can be served.
func (x *route) backend(ref gatewayv1.BackendObjectReference, field, effect string) (to *networkingv1alpha3.Destination, problem bool) {
	k, ns := x.kindOfBackend(ref), namespaceOr(ref.Namespace, x.object.Namespace)
	none := &networkingv1alpha3.Destination{Host: names.NoService}
	port := uint32(0)
	if ref.Port != nil {
		port = uint32(*ref.Port)
	}
	if k == nil {
		x.unresolve(gatewayv1.RouteReasonInvalidKind,
			fmt.Sprintf("referencing unsupported backendRef: group %q kind %q", groupOr(ref.Group, ""), kindOr(ref.Kind, "Service")),
			field+".kind", "name a Service", effect)
		return none, true
	}
	host, key := k.host(x.looked.run.o.Domain, ns, string(ref.Name)), kinds.Key{Kind: k.object, Namespace: ns, Name: string(ref.Name)}
	wanted := reference{x.object.Kind.Group, x.object.Kind.Name, x.object.Namespace, k.group, k.kind, ns, string(ref.Name)}
	if k.object != nil && !x.looked.granted(wanted) && !x.needsNoGrant(key) {
		x.unresolve(gatewayv1.RouteReasonRefNotPermitted,
			fmt.Sprintf("backendRef %s/%s not accessible to a %s in namespace %q (missing a ReferenceGrant?)", ref.Name, ns,
				x.object.Kind.Name, x.object.Namespace),
			field, "add a ReferenceGrant in namespace "+ns, effect)
		return none, true
	}
	if port == 0 {
		x.unresolve("InvalidDestination", "port is required in backendRef", field+".port", "write the port", effect)
		return none, true
	}
	to = &networkingv1alpha3.Destination{Host: host, Port: &networkingv1alpha3.PortSelector{Number: port}}
	if k.object == nil {
		return to, false
	}
	o := x.looked.object(key)
	if o == nil {
		x.unresolve(gatewayv1.RouteReasonBackendNotFound, "backend("+host+") not found", field+".name",
			"add the "+key.Kind.Name+", or name another", effect)
		return to, true
	}
	if !hasPort(o, port) {
		x.found(field+".port", diag.Error, "name a port of the "+key.Kind.Name,
			fmt.Sprintf("%s %s/%s has no port %d: %s", key.Kind.Name, ns, ref.Name, port, effect))
	}
	return to, false
}

// hasPort reports whether a Service or a ServiceImport has a port.
func hasPort(o *kinds.Object, port uint32) bool {
	if s, ok := o.Spec.(*corev1.Service); ok {
		return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return uint32(p.Port) == port })
	}
	return slices.ContainsFunc(o.Spec.(*mcsv1alpha1.ServiceImport).Spec.Ports, func(p mcsv1alpha1.ServicePort) bool {
		return uint32(p.Port) == port
	})
}

// needsNoGrant reports whether the rules being made may use a Service of another namespace without a ReferenceGrant.
// Rules for the mesh may if the Service is a parent of the route, because its clients reach it anyway.
func (x *route) needsNoGrant(service kinds.Key) bool {
	if !slices.ContainsFunc(x.parents, func(p *parent) bool { return p.mesh && p.object == service }) {
		return false
	}
	x.exempt = true
	return x.forMesh
}

func weightOf(b gatewayv1.BackendRef) int32 {
	if b.Weight == nil {
		return 1
	}
	return *b.Weight
}

// forward translates a rule of a TLSRoute or a TCPRoute.
func (x *route) forward(i int, refs []gatewayv1.BackendRef) {
	if i > 0 {
		x.found(fmt.Sprintf("spec.rules[%d]", i), diag.Warning, "make another route", "only the first rule is used")
		return
	}
	for j, b := range refs {
		x.leadsTo(b.BackendObjectReference)
		if weightOf(b) == 0 {
			continue
		}
		to, _ := x.backend(b.BackendObjectReference, fmt.Sprintf("spec.rules[0].backendRefs[%d]", j), "its connections are closed")
		x.forwards = append(x.forwards, &networkingv1alpha3.RouteDestination{Destination: to, Weight: weightOf(b)})
	}
	if len(x.forwards) == 1 {
		x.forwards[0].Weight = 0
	}
	if len(x.forwards) == 0 {
		x.found("spec.rules[0].backendRefs", diag.Warning, "name a Service", "no backend gets connections: they are closed")
		x.forwards = []*networkingv1alpha3.RouteDestination{{Destination: &networkingv1alpha3.Destination{Host: names.NoService}}}
	}
}

// virtualService returns a VirtualService for some hosts and gateways.
func (x *route) virtualService(name string, spec *networkingv1.VirtualService) *kinds.Object {
	return &kinds.Object{
		Key: kinds.Key{Kind: kinds.VirtualService, Namespace: x.object.Namespace, Name: name}, Created: x.object.Created,
		Extra: &kinds.RouteExtra{Segments: true, SchemePort: true, MissingCluster: 500}, Spec: spec,
	}
}
