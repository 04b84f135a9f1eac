package gatewayapi

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// parent is one of spec.parentRefs of a route. Parents of other controllers are left out.
type parent struct {
	ref     gatewayv1.ParentReference
	field   string
	refused *condition // why the route is not accepted; nil if it is

	attached []attachment // listeners that take the route

	// The fields below are set if the parent is a Service or a ServiceEntry.
	mesh    bool      // whether the parent is a Service or a ServiceEntry
	object  kinds.Key // key of the parent
	service string    // host of the service; empty if there is no such object
	ports   []uint32  // ports of the service
	port    uint32    // port that the route is limited to; 0 for all
	own     bool      // whether the route is in the namespace of the service
}

// attachment is a listener that takes a route, and the hosts that the route has there.
type attachment struct {
	listener *listener
	hosts    []string // "*" for all of the listener
}

// attach finds the parents of a route.
func (x *route) attach(refs []gatewayv1.ParentReference, hostnames []gatewayv1.Hostname) {
	for i, ref := range refs {
		p := &parent{ref: ref, field: fmt.Sprintf("spec.parentRefs[%d]", i)}
		group, kind := groupOr(ref.Group, kinds.KubeGateway.Group), kindOr(ref.Kind, "Gateway")
		ns := namespaceOr(ref.Namespace, x.object.Namespace)
		var known bool
		switch {
		case group == kinds.KubeGateway.Group && kind == "Gateway":
			key := kinds.Key{Kind: kinds.KubeGateway, Namespace: ns, Name: string(ref.Name)}
			known = x.attachToGateway(p, key, key, hostnames)
		case group == kinds.KubeGateway.Group && kind == "ListenerSet":
			set := kinds.Key{Kind: kinds.ListenerSet, Namespace: ns, Name: string(ref.Name)}
			if of, is := x.looked.parent(set); is {
				known = x.attachToGateway(p, of, set, hostnames)
			}
		case group == "" && kind == "Service", group == kinds.ServiceEntry.Group && kind == "ServiceEntry":
			list := x.attachToService(p, kind, ns)
			x.parents = append(x.parents, list...)
			continue
		}
		if !known {
			x.found(p.field, diag.Warning, "name a Gateway, a ListenerSet, a Service or a ServiceEntry",
				fmt.Sprintf("there is no %s %s/%s of this control plane: the route does not attach to it", kind, ns, ref.Name))
			continue
		}
		x.parents = append(x.parents, p)
	}
	x.reportLost()
}

// refuseParents rejects a route of an unsupported kind at all its parents.
func (x *route) refuseParents(refs []gatewayv1.ParentReference) {
	x.attach(refs, nil)
	message := x.object.Kind.Name + "s are not supported: the route has no effect"
	for _, p := range x.parents {
		reason := gatewayv1.RouteReasonNotAllowedByListeners // none of the parents takes the kind
		if kind := kindOr(p.ref.Kind, "Gateway"); kind != "Gateway" && kind != "ListenerSet" {
			reason = gatewayv1.RouteReasonNoMatchingParent
		}
		p.attached, p.refused = nil, &condition{metav1.ConditionFalse, string(reason), message}
		x.findings = slices.DeleteFunc(x.findings, func(d diag.Diagnostic) bool { return d.Field == p.field })
		x.found(p.field, diag.Warning, "remove it", message)
	}
}

// reportLost adds findings about hosts to which the route does not attach because a more specific listener has them.
func (x *route) reportLost() {
	for _, lost := range x.lost {
		gets := func(a attachment) bool { return a.listener == lost.to && slices.Contains(a.hosts, lost.host) }
		if slices.ContainsFunc(x.parents, func(p *parent) bool { return slices.ContainsFunc(p.attached, gets) }) {
			continue
		}
		to := string(lost.to.Name)
		if lost.to.owner != lost.by.owner {
			to += " of " + lost.to.owner.String()
		}
		x.found("spec.hostnames", diag.Info, "attach it to that listener too, or leave the host out",
			fmt.Sprintf("requests for %s go to listener %s: this route does not get them by listener %s", lost.host, to, lost.by.Name))
	}
	x.lost = nil
}

// lostHost is a host of a route that a more specific listener has.
type lostHost struct {
	host   string
	to, by *listener
}

// attachToGateway attaches a route to the listeners of a Gateway, or of one of its ListenerSets, the owner of the
// listeners. It returns false if the Gateway belongs to another controller.
func (x *route) attachToGateway(p *parent, key, owner kinds.Key, hostnames []gatewayv1.Hostname) bool {
	g, listeners := x.looked.listeners(key, owner)
	if g == nil {
		return false
	}
	if !slices.Contains(x.gateways, key) {
		x.gateways = append(x.gateways, key)
	}
	var reasons []condition
	refuse := func(reason gatewayv1.RouteConditionReason, format string, args ...any) {
		reasons = append(reasons, condition{metav1.ConditionFalse, string(reason), fmt.Sprintf(format, args...)})
	}
	for _, l := range listeners {
		if !l.routed {
			continue
		}
		switch hosts := l.hostsOf(hostnames); {
		case p.ref.SectionName != nil && *p.ref.SectionName != "" && *p.ref.SectionName != l.Name:
			refuse(gatewayv1.RouteReasonNoMatchingParent, "sectionName %q not found", *p.ref.SectionName)
		case p.ref.Port != nil && *p.ref.Port != l.Port:
			refuse(gatewayv1.RouteReasonNoMatchingParent, "port %d not found", *p.ref.Port)
		case len(hosts) == 0:
			refuse(gatewayv1.RouteReasonNoMatchingListenerHostname, "no hostnames matched parent hostname %q", l.hostname)
		case !l.takes(x.object.Kind):
			refuse(gatewayv1.RouteReasonNotAllowedByListeners, "kind %s/%s/%s is not allowed", x.object.Kind.Group,
				x.object.Kind.Versions[0], x.object.Kind.Name)
		case !l.allows(x.looked, x.object.Namespace):
			refuse(gatewayv1.RouteReasonNotAllowedByListeners,
				"hostnames matched parent hostname %q, but namespace %q is not allowed by the parent", strings.TrimPrefix(l.hostname, "*/"),
				x.object.Namespace)
		default:
			p.attached = append(p.attached, attachment{l, x.isolated(l, hosts)})
		}
	}
	if len(p.attached) > 0 {
		return true
	}
	p.refused = &condition{metav1.ConditionFalse, string(gatewayv1.RouteReasonNoMatchingParent), "no listener matched"}
	for _, reason := range []gatewayv1.RouteConditionReason{gatewayv1.RouteReasonNotAllowedByListeners,
		gatewayv1.RouteReasonNoMatchingListenerHostname, gatewayv1.RouteReasonNoMatchingParent} {
		var messages []string
		for _, c := range reasons {
			if c.reason == string(reason) && !slices.Contains(messages, c.message) {
				messages = append(messages, c.message)
			}
		}
		if len(messages) > 0 {
			p.refused = &condition{metav1.ConditionFalse, string(reason), strings.Join(messages, "; ")}
			break
		}
	}
	x.found(p.field, diag.Warning, "name a listener that takes it", p.refused.message+": the route does not attach")
	return true
}

// isolated returns the hosts whose requests reach a listener. Hosts of a more specific listener of the port are left
// out, even if that listener has no route for them.
func (x *route) isolated(l *listener, hosts []string) []string {
	return slices.DeleteFunc(hosts, func(host string) bool {
		n := l.listenerOf(x.looked, host)
		if n != l {
			x.lost = append(x.lost, lostHost{host, n, l})
		}
		return n != l
	})
}

// hostsOf returns the hosts of a route that a listener takes.
func (l *listener) hostsOf(hostnames []gatewayv1.Hostname) (hosts []string) {
	if len(hostnames) == 0 {
		return []string{"*"}
	}
	for _, h := range hostnames {
		if host, is := mostSpecific(l.hostname, strings.ToLower(string(h))); is && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// attachToService attaches a route to a service of the mesh. It returns one parent for each host of the service.
func (x *route) attachToService(p *parent, kind, namespace string) []*parent {
	key := kinds.Key{Kind: kinds.Service, Namespace: namespace, Name: string(p.ref.Name)}
	if kind == "ServiceEntry" {
		key.Kind = kinds.ServiceEntry
	}
	if p.ref.Port != nil {
		p.port = uint32(*p.ref.Port)
	}
	p.mesh, p.object = true, key
	p.own = namespace == x.object.Namespace
	o := x.looked.object(key)
	if o == nil {
		p.refused = &condition{metav1.ConditionFalse, string(gatewayv1.RouteReasonNoMatchingParent),
			fmt.Sprintf("parent service: %q not found", p.ref.Name)}
		x.found(p.field, diag.Warning, "add it, or name another",
			fmt.Sprintf("there is no %s %s/%s: the route does not attach to it", kind, namespace, p.ref.Name))
		return []*parent{p}
	}
	hosts := []string{key.Name + "." + namespace + ".svc." + x.looked.run.o.Domain}
	switch spec := o.Spec.(type) {
	case *corev1.Service:
		for _, port := range spec.Spec.Ports {
			p.ports = append(p.ports, uint32(port.Port))
		}
	case *networkingv1.ServiceEntry:
		hosts = spec.Hosts
		for _, port := range spec.Ports {
			p.ports = append(p.ports, port.Number)
		}
	}
	var list []*parent
	for _, host := range hosts {
		of := *p
		of.service = host
		list = append(list, &of)
	}
	return list
}
