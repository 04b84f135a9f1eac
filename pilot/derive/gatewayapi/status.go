package gatewayapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// condition is a condition of a status, without its type.
type condition struct {
	status  metav1.ConditionStatus
	reason  string
	message string
}

// typed is a condition with its type.
type typed struct {
	kind string
	condition
}

// conditions returns the conditions of an object, or of a part of it, by type. A condition keeps its transition time
// while its status stays the same. A new one has none, which the writer sets. Conditions of other types stay.
func conditions(o *kinds.Object, existing []metav1.Condition, list ...typed) []metav1.Condition {
	var out []metav1.Condition
	for _, c := range existing {
		if len(out)+len(list) == mostConditions {
			break
		}
		if !slices.ContainsFunc(list, func(t typed) bool { return t.kind == c.Type }) && !slices.Contains(ownConditions, c.Type) {
			out = append(out, c)
		}
	}
	for _, t := range list {
		var at metav1.Time
		if i := slices.IndexFunc(existing, func(c metav1.Condition) bool { return c.Type == t.kind && c.Status == t.status }); i >= 0 {
			at = existing[i].LastTransitionTime
		}
		out = append(out, metav1.Condition{Type: t.kind, Status: t.status, Reason: t.reason, Message: shortened(t.message),
			ObservedGeneration: o.Spec.(metav1.Object).GetGeneration(), LastTransitionTime: at})
	}
	slices.SortStableFunc(out, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return out
}

// Limits of the API server: conditions of an object or of a part of it, bytes of a message, parents of a route,
// ancestors of a policy.
const (
	mostConditions = 8
	longestMessage = 32768
	mostParents    = 32
	mostAncestors  = 16
)

// shortened shortens a message to the API server's limit.
func shortened(message string) string {
	if len(message) <= longestMessage {
		return message
	}
	const more = "..."
	return strings.ToValidUTF8(message[:longestMessage-len(more)], "") + more
}

// ownConditions are all condition types that this controller writes.
var ownConditions = []string{"Accepted", "Programmed", "ResolvedRefs", "Conflicted", insecureClients, overlapping}

const (
	insecureClients = string(gatewayv1.GatewayConditionInsecureFrontendValidationMode)
	overlapping     = string(gatewayv1.ListenerConditionOverlappingTLSConfig)
)

// asJSON returns some fields of a status as decoded JSON, nil for absent ones.
func asJSON(status any, fields ...string) map[string]any {
	b, err := json.Marshal(status)
	if err != nil {
		panic(err) // types of the Gateway API can always be encoded
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		panic(err) // the encoder's own output can be decoded
	}
	out := map[string]any{}
	for _, f := range fields {
		out[f] = all[f]
	}
	return out
}

func yes(reason, message string) condition {
	return condition{metav1.ConditionTrue, reason, message}
}

func no(reason, message string) condition {
	return condition{metav1.ConditionFalse, reason, message}
}

// classStatus returns the status of a GatewayClass of this controller: accepted.
func classStatus(o *kinds.Object) *derive.Status {
	was := o.Spec.(*gatewayv1.GatewayClass).Status
	now := gatewayv1.GatewayClassStatus{Conditions: conditions(o, was.Conditions,
		typed{"Accepted", yes("Accepted", "Handled by Istio controller")})}
	return &derive.Status{Of: o.Key, Value: asJSON(now, "conditions"), Current: asJSON(was, "conditions")}
}

// statusOf is the key of the status of a Gateway or a ListenerSet.
type statusOf kinds.Key

// makeGatewayStatuses makes the statuses of Gateways and ListenerSets that were made again, or whose numbers of
// attached routes have changed.
func (r *run) makeGatewayStatuses() {
	for g := range r.statusesDue {
		key := g.object.Key
		if r.gateways[key] != g {
			continue
		}
		if g.judge(key) {
			r.put(statusOf(key), derive.Part{Statuses: []*derive.Status{g.status()}})
		}
		for _, s := range g.sets {
			if g.judge(s.object.Key) {
				r.put(statusOf(s.object.Key), derive.Part{Statuses: []*derive.Status{g.setStatus(s)}})
			}
		}
	}
}

// judge reports whether the status of an owner of listeners is out of date, and records that it will be made.
func (g *gateway) judge(owner kinds.Key) bool {
	attached, judged := g.judged[owner]
	if of := g.of[owner]; !judged || !slices.EqualFunc(of, attached, func(l *listener, n int32) bool { return l.attached == n }) {
		attached = make([]int32, len(of))
		for i, l := range of {
			attached[i] = l.attached
		}
		g.judged[owner] = attached
		return true
	}
	return false
}

// status returns the status of the Gateway.
func (g *gateway) status() *derive.Status {
	was := g.object.Spec.(*gatewayv1.Gateway).Status
	now := gatewayv1.GatewayStatus{Addresses: g.addresses}
	bad, own := 0, g.of[g.object.Key]
	for _, l := range own {
		if !l.bound {
			bad++
		}
		var before []metav1.Condition
		if i := slices.IndexFunc(was.Listeners, func(s gatewayv1.ListenerStatus) bool { return s.Name == l.Name }); i >= 0 {
			before = was.Listeners[i].Conditions
		}
		now.Listeners = append(now.Listeners, l.status(before))
	}
	resolved := yes("ResolvedRefs", "All references resolved")
	if g.unresolved != nil {
		resolved = *g.unresolved
	}
	all := []typed{{"Accepted", g.accepted(bad, len(own))}, {"Programmed", g.programmed(g.listeners)}, {"ResolvedRefs", resolved}}
	if allowsInsecure(gatewaySpec(g.object)) {
		all = append(all, typed{insecureClients, yes(string(gatewayv1.GatewayReasonConfigurationChanged),
			"Clients whose certificate is missing or not valid are let in")})
	}
	now.Conditions = conditions(g.object, was.Conditions, all...)
	sets := int32(0)
	for _, s := range g.sets {
		if g.acceptsSet(s) {
			sets++
		}
	}
	if sets > 0 {
		now.AttachedListenerSets = &sets
	}
	fields := []string{"addresses", "conditions", "listeners", "attachedListenerSets"}
	return &derive.Status{Of: g.object.Key, Value: asJSON(now, fields...), Current: asJSON(was, fields...)}
}

// accepted returns the condition Accepted of a Gateway, for a number of bad listeners.
func (g *gateway) accepted(bad, all int) condition {
	switch {
	case g.badParameters != "":
		return no(string(gatewayv1.GatewayReasonInvalidParameters), g.badParameters)
	case g.unsupportedAddress != "":
		return no(string(gatewayv1.GatewayReasonUnsupportedAddress), "addresses of type "+g.unsupportedAddress+" are not supported")
	case bad > 0 && bad == all:
		return no(string(gatewayv1.GatewayReasonListenersNotValid), "None of the Gateway's listeners are valid")
	case bad > 0:
		return yes(string(gatewayv1.GatewayReasonListenersNotValid), "One or more of the Gateway's listeners are invalid")
	}
	return yes("Accepted", "Resource accepted")
}

// acceptsSet reports whether a ListenerSet is accepted: the Gateway allows it, and at least one of its listeners takes
// connections.
func (g *gateway) acceptsSet(s *listenerSet) bool {
	of := g.of[s.object.Key]
	return s.allowed && (len(of) == 0 || slices.ContainsFunc(of, func(l *listener) bool { return l.bound }))
}

// setStatus returns the status of a ListenerSet.
func (g *gateway) setStatus(s *listenerSet) *derive.Status {
	was := s.object.Spec.(*gatewayv1.ListenerSet).Status
	var now gatewayv1.ListenerSetStatus
	listeners := g.of[s.object.Key]
	for _, l := range listeners {
		var before []metav1.Condition
		if i := slices.IndexFunc(was.Listeners, func(s gatewayv1.ListenerEntryStatus) bool { return s.Name == l.Name }); i >= 0 {
			before = was.Listeners[i].Conditions
		}
		now.Listeners = append(now.Listeners, gatewayv1.ListenerEntryStatus(l.status(before)))
	}
	acceptance, programmed := yes("Accepted", "Resource accepted"), g.programmed(listeners)
	if !s.allowed {
		acceptance = no(string(gatewayv1.ListenerSetReasonNotAllowed),
			"The parent Gateway does not allow this reference; check the 'spec.allowedRoutes'")
		programmed = acceptance
	} else if !g.acceptsSet(s) {
		acceptance = no(string(gatewayv1.GatewayReasonListenersNotValid), "None of the ListenerSet's listeners are valid")
		programmed = acceptance
	}
	now.Conditions = conditions(s.object, was.Conditions, typed{"Accepted", acceptance}, typed{"Programmed", programmed})
	return &derive.Status{Of: s.object.Key, Value: asJSON(now, "conditions", "listeners"), Current: asJSON(was, "conditions", "listeners")}
}

// programmed returns the condition Programmed: whether the Services of a Gateway have the ports of listeners, and
// addresses.
func (g *gateway) programmed(listeners []*listener) condition {
	has, problems := g.exposed(listeners)
	list := strings.Join(has, " and ")
	if n := len(has); n > 2 {
		list = strings.Join(has[:n-1], ", ") + ", and " + has[n-1]
	}
	reason := gatewayv1.GatewayReasonAddressNotUsable
	if len(problems) == 0 && g.unnamed {
		reason = gatewayv1.GatewayReasonAddressNotAssigned
		problems = []string{"no address is assigned yet"}
	}
	switch {
	case len(problems) == 0:
		return yes("Programmed", "Resource programmed, assigned to service(s) "+list)
	case len(has) > 0:
		return no(string(reason), "Assigned to service(s) "+list+", but failed to assign to all requested addresses: "+
			strings.Join(problems, "; "))
	}
	return no(string(reason), "Failed to assign to any requested addresses: "+strings.Join(problems, "; "))
}

const noErrors = "No errors found"

// status returns the status of a listener.
func (l *listener) status(was []metav1.Condition) gatewayv1.ListenerStatus {
	s := gatewayv1.ListenerStatus{Name: l.Name, AttachedRoutes: l.attached, SupportedKinds: []gatewayv1.RouteGroupKind{}}
	for _, k := range l.kinds {
		group := gatewayv1.Group(k.Group)
		s.SupportedKinds = append(s.SupportedKinds, gatewayv1.RouteGroupKind{Group: &group, Kind: gatewayv1.Kind(k.Name)})
	}
	acceptance, conflict, programmed := yes("Accepted", noErrors), no(string(gatewayv1.ListenerReasonNoConflicts), noErrors),
		yes("Programmed", noErrors)
	resolved := yes("ResolvedRefs", noErrors)
	if l.resolved != nil {
		resolved = *l.resolved
	}
	if l.refused != nil {
		acceptance = *l.refused
	}
	switch {
	case l.conflict != "":
		conflict = yes(string(l.conflict), conflictedListener)
		s.Conditions = conditions(l.owner, was, typed{"Accepted", acceptance}, typed{"Conflicted", conflict}, typed{"Programmed", acceptance})
		return s
	case l.refused != nil && l.resolved == nil:
		programmed = no(string(gatewayv1.ListenerReasonInvalid), l.refused.message)
	case !l.bound:
		programmed = no(string(gatewayv1.ListenerReasonInvalid), "Bad TLS configuration")
	}
	all := []typed{{"Accepted", acceptance}, {"Conflicted", conflict}, {"Programmed", programmed}, {"ResolvedRefs", resolved}}
	if l.overlaps {
		all = append(all, typed{overlapping, yes(string(gatewayv1.ListenerReasonOverlappingHostnames),
			"Another listener of the port terminates TLS for some of the names of this one")})
	}
	s.Conditions = conditions(l.owner, was, all...)
	return s
}

// routeStatus returns the present status of a route.
func routeStatus(o *kinds.Object) gatewayv1.RouteStatus {
	switch route := o.Spec.(type) {
	case *gatewayv1.HTTPRoute:
		return route.Status.RouteStatus
	case *gatewayv1.GRPCRoute:
		return route.Status.RouteStatus
	case *gatewayv1.TLSRoute:
		return route.Status.RouteStatus
	case *gatewayv1.TCPRoute:
		return route.Status.RouteStatus
	case *gatewayv1.UDPRoute:
		return route.Status.RouteStatus
	}
	return gatewayv1.RouteStatus{}
}

// makeStatus returns the wanted status of a route, or nil for none. Entries of other controllers than the given one
// stay.
func (x *route) makeStatus(lost []hostLoss, controller gatewayv1.GatewayController) *derive.Status {
	was := routeStatus(x.object)
	now := gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{}}
	ours := false
	for _, p := range was.Parents {
		if p.ControllerName != controller {
			now.Parents = append(now.Parents, p)
		} else {
			ours = true
		}
	}
	var done []string
	for _, p := range x.parents {
		ref := p.ref
		group, kind := gatewayv1.Group(groupOr(ref.Group, kinds.KubeGateway.Group)), gatewayv1.Kind(kindOr(ref.Kind, "Gateway"))
		ref.Group, ref.Kind = &group, &kind
		part := identityOf(ref)
		if slices.Contains(done, part) {
			continue // the same entry, for another host of a ServiceEntry
		}
		done = append(done, part)
		if len(now.Parents) == mostParents {
			break // the remaining entries belong to other controllers
		}
		var earlier []metav1.Condition
		for _, e := range was.Parents {
			if e.ControllerName == controller && identityOf(e.ParentRef) == part {
				earlier = e.Conditions
			}
		}
		message := "Route was valid"
		if len(p.attached) > 1 {
			message = fmt.Sprintf("Route was valid, bound to %d parents", len(p.attached))
		}
		acceptance, resolved := yes("Accepted", message), yes("ResolvedRefs", "All references resolved")
		switch {
		case p.refused != nil:
			acceptance = *p.refused
		case x.refused != nil:
			acceptance = *x.refused
		}
		of := &x.rules
		if p.mesh {
			of = x.mesh()
		}
		if of.unresolved != nil {
			resolved = *of.unresolved
		}
		all := []typed{{"Accepted", acceptance}, {"ResolvedRefs", resolved}}
		if conflict, is := x.conflicted(p, lost); is {
			all = append(all, typed{"Conflicted", conflict})
		}
		now.Parents = append(now.Parents, gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: controller,
			Conditions: conditions(x.object, earlier, all...)})
	}
	if len(done) == 0 && !ours {
		return nil
	}
	return &derive.Status{Of: x.object.Key, Value: asJSON(now, "parents"), Current: asJSON(was, "parents")}
}

// identityOf returns a text that identifies a reference to a parent.
func identityOf(ref gatewayv1.ParentReference) string {
	section, port := "", int32(0)
	if ref.SectionName != nil {
		section = string(*ref.SectionName)
	}
	if ref.Port != nil {
		port = *ref.Port
	}
	return fmt.Sprintf("%s/%s/%s/%s/%s/%d", groupOr(ref.Group, kinds.KubeGateway.Group), kindOr(ref.Kind, "Gateway"),
		namespaceOr(ref.Namespace, ""), ref.Name, section, port)
}

// policyStatus returns the status of a policy for backends: for each target, and for a BackendTLSPolicy also for each
// Gateway with routes to one. Entries of other controllers stay.
func (r *run) policyStatus(p *backendPolicy) *derive.Status {
	was, controller := statusOfPolicy(p.object), gatewayv1.GatewayController(r.o.Controller)
	now := gatewayv1.PolicyStatus{Ancestors: []gatewayv1.PolicyAncestorStatus{}}
	for _, a := range was.Ancestors {
		if a.ControllerName != controller && a.ControllerName != meshController {
			now.Ancestors = append(now.Ancestors, a)
		}
	}
	add := func(ref gatewayv1.ParentReference, by gatewayv1.GatewayController, acceptance condition) {
		if len(now.Ancestors) == mostAncestors {
			return
		}
		part := identityOf(ref)
		if slices.ContainsFunc(now.Ancestors, func(a gatewayv1.PolicyAncestorStatus) bool {
			return identityOf(a.AncestorRef) == part && a.ControllerName == by
		}) {
			return
		}
		var earlier []metav1.Condition
		for _, a := range was.Ancestors {
			if a.ControllerName == by && identityOf(a.AncestorRef) == part {
				earlier = a.Conditions
			}
		}
		all := []typed{{"Accepted", acceptance}}
		if p.tls != nil {
			all = append(all, typed{"ResolvedRefs", p.resolved})
		}
		now.Ancestors = append(now.Ancestors, gatewayv1.PolicyAncestorStatus{
			AncestorRef: ref, ControllerName: by, Conditions: conditions(p.object, earlier, all...),
		})
	}
	for _, t := range p.targets {
		acceptance := p.accepted
		switch {
		case p.ignored:
			acceptance = no("IgnoredByIstio", "Ignored by Istio due to annotation "+kinds.AnnotationIgnorePolicy+"=true")
		case t.missing != "":
			acceptance = no(string(gatewayv1.PolicyReasonTargetNotFound), "targetRefs invalid: "+t.missing)
		case t.winner != "" && acceptance.status == metav1.ConditionTrue:
			acceptance = no(string(gatewayv1.PolicyReasonConflicted),
				fmt.Sprintf("Conflicts with %s %q targeting the same backend", p.object.Kind.Name, t.winner))
		}
		group, kind := t.Group, t.Kind
		add(gatewayv1.ParentReference{Group: &group, Kind: &kind, Name: t.Name, SectionName: t.SectionName}, meshController, acceptance)
		if t.missing != "" || p.tls == nil {
			continue
		}
		for _, key := range slices.SortedFunc(maps.Keys(r.backends[t.key]), compareNames) {
			group, kind := gatewayv1.Group(kinds.KubeGateway.Group), gatewayv1.Kind("Gateway")
			ref := gatewayv1.ParentReference{Group: &group, Kind: &kind, Name: gatewayv1.ObjectName(key.Name)}
			if key.Namespace != p.object.Namespace {
				ns := gatewayv1.Namespace(key.Namespace)
				ref.Namespace = &ns
			}
			add(ref, controller, acceptance)
		}
	}
	return &derive.Status{Of: p.object.Key, Value: asJSON(now, "ancestors"), Current: asJSON(was, "ancestors")}
}
