package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// atGateway follows a request that comes to a gateway. Its client called a port or a node port of the gateway's
// Service, which leads to a port of the gateway's own.
func (h *hops) atGateway(sent trace.Config, r trace.Request, p *node.Proxy) (*trace.Answer, error) {
	called := r.Port
	way := h.wayIn(r, p)
	if _, err := netip.ParseAddr(r.Host); err != nil { // the host may be any that its servers have
		r.Address = first(p.IPs)
	}
	var answer *trace.Answer
	for _, r.Port = range way.ports {
		a, err := trace.Follow(sent, r)
		if err != nil {
			return nil, err
		}
		if way.by != "" {
			step := trace.Step{What: "port", Name: strconv.Itoa(int(r.Port)), Reason: way.by}
			a.Steps = append([]trace.Step{step}, a.Steps...)
		}
		if a.ByAddress && r.SourceAddress != "" && !h.query.logged {
			if by := h.masquerades(called, r, p); by != "" {
				a.Depends = append(a.Depends, trace.Dependency{Text: fmt.Sprintf("policies may see the address of a node instead of %s: %s does not "+
					"have externalTrafficPolicy Local", r.SourceAddress, by)})
			}
		}
		if answer == nil {
			answer = a
		} else if a.Status != answer.Status || a.Answered != answer.Answered || clustersOf(a) != clustersOf(answer) {
			answer.Depends = append(answer.Depends, trace.Dependency{Text: fmt.Sprintf("one Service leads port %d to port %d, and another one to "+
				"port %d, where the answer is another one", called, answer.Forwarded.Port, r.Port)})
		}
	}
	if way.closed && !h.query.logged && answer.Status != 0 {
		answer.Depends = append(answer.Depends, trace.Dependency{Text: fmt.Sprintf("no Service leads port %d to %s.%s: only clients that "+
			"reach the Pod's own address can call it", called, p.Name, p.Namespace)})
	}
	return answer, nil
}

// masquerades returns the Service by which clients outside the cluster call a port of a gateway, if nodes may replace
// the addresses of clients by their own, or "".
func (i *Inspection) masquerades(called uint32, r trace.Request, p *node.Proxy) string {
	for t := range i.translator.ResolveCohort(i.Snapshot, p).Client.Value().Targets.All {
		key := kinds.Key{Kind: kinds.Service, Namespace: t.Service.Namespace, Name: t.Service.Name}
		o := i.world.Object(key)
		if o == nil || t.UDP != r.HTTP3 || t.Port != called && i.nodePort(t) != called {
			continue
		}
		spec := o.Spec.(*corev1.Service).Spec
		if spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort {
			if spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
				return i.Where(key, "")
			}
		}
	}
	return ""
}

// wayIn is how connections to a port come to a gateway.
type wayIn struct {
	ports  []uint32 // ports of the gateway's own
	by     string   // what leads there from another port; optional
	closed bool     // whether only clients that reach the Pod's own address come there
}

// wayIn returns how a client's connection comes to a gateway. The client calls a port of a Service, or else a port of
// the nodes that leads to a Service or to the Pod itself, or else the Pod.
func (i *Inspection) wayIn(r trace.Request, p *node.Proxy) wayIn {
	itself := wayIn{ports: []uint32{r.Port}}
	if slices.Contains(p.IPs, r.Host) {
		return itself
	}
	var service, nodes wayIn
	isTarget := false
	for t := range i.translator.ResolveCohort(i.Snapshot, p).Client.Value().Targets.All {
		switch {
		case t.UDP != r.HTTP3:
			continue
		case t.Port == r.Port && t.TargetPort == r.Port:
			service.ports = append(service.ports, t.TargetPort)
		case t.Port == r.Port:
			service.ports, service.by = append(service.ports, t.TargetPort), fmt.Sprintf("a Service leads port %d there", r.Port)
		case i.nodePort(t) == r.Port:
			nodes.ports = append(nodes.ports, t.TargetPort)
			nodes.by = fmt.Sprintf("node port %d of Service %s/%s leads there", r.Port, t.Service.Namespace, t.Service.Name)
		}
		isTarget = isTarget || t.TargetPort == r.Port
	}
	for _, w := range []wayIn{service, nodes} {
		if len(w.ports) > 0 {
			slices.Sort(w.ports)
			w.ports = slices.Compact(w.ports)
			return w
		}
	}
	if port := i.hostPort(r, p); port != 0 {
		return wayIn{ports: []uint32{port}, by: fmt.Sprintf("port %d of the Pod's node leads there", r.Port)}
	}
	itself.closed = !isTarget
	return itself
}

// nodePort returns the port of the nodes that leads to a port of a Service, or 0.
func (i *Inspection) nodePort(t cohort.Target) uint32 {
	o := i.world.Object(kinds.Key{Kind: kinds.Service, Namespace: t.Service.Namespace, Name: t.Service.Name})
	if o == nil {
		return 0
	}
	for _, p := range o.Spec.(*corev1.Service).Spec.Ports {
		if uint32(p.Port) == t.Port && (p.Protocol == corev1.ProtocolUDP) == t.UDP {
			return uint32(p.NodePort)
		}
	}
	return 0
}

// hostPort returns the port of a Pod to which a port of its node leads, or 0. The ports of Pods that were read from a
// cluster are not known, unless a Pod has the network of its node.
func (i *Inspection) hostPort(r trace.Request, p *node.Proxy) uint32 {
	o := i.world.Object(kinds.Key{Kind: kinds.Pod, Namespace: p.Namespace, Name: p.Name})
	if o == nil {
		return 0
	}
	if kube.FactsOfPod(o).HostNetwork {
		return r.Port
	}
	if pod, whole := o.Spec.(*corev1.Pod); whole {
		for _, c := range pod.Spec.Containers {
			for _, port := range c.Ports {
				if uint32(port.HostPort) == r.Port && (port.Protocol == corev1.ProtocolUDP) == r.HTTP3 {
					return uint32(port.ContainerPort)
				}
			}
		}
	}
	return 0
}

// unheard returns why a gateway takes no connection to a port of its own: what is wrong with the listener of its
// Gateway, or which ports its Gateways have. It is empty if that is not the reason.
func (i *Inspection) unheard(a *trace.Answer, p *node.Proxy) string {
	has := func(what, name string) bool {
		return slices.ContainsFunc(a.Steps, func(s trace.Step) bool { return s.What == what && (name == "" || s.Name == name) })
	}
	listens := has("listener", "")
	if p.Type != node.Router || a.Status != 0 || a.Forwarded.HTTP3 || listens && !has("filter chain", "none") {
		return ""
	}
	client := i.translator.ResolveCohort(i.Snapshot, p).Client.Value()
	ports := []uint32{a.Forwarded.Port}
	for t := range client.Targets.All {
		if t.TargetPort == a.Forwarded.Port {
			ports = append(ports, t.Port)
		}
	}
	if wrong := i.badListeners(p, ports); wrong != "" || listens {
		return wrong
	}
	var others []string
	for o := range client.Gateways.All {
		for n, s := range o.Spec.(*networkingv1.Gateway).GetServers() {
			if slices.Contains(ports, s.GetPort().GetNumber()) {
				return i.unrouted(o, n, s)
			}
			others = append(others, fmt.Sprintf("%s/%s has %d", o.Namespace, o.Name, s.GetPort().GetNumber()))
		}
	}
	if len(others) == 0 {
		return fmt.Sprintf("no Gateway selects %s.%s", p.Name, p.Namespace)
	}
	slices.Sort(others)
	return "of its Gateways, " + strings.Join(slices.Compact(others), ", ")
}

// unrouted returns why a server that does not read HTTP has no listener, or "" for other servers.
func (i *Inspection) unrouted(gateway *kinds.Object, n int, s *networkingv1alpha3.Server) string {
	rules := "tcp rules"
	switch protocol := strings.ToUpper(s.GetPort().GetProtocol()); {
	case s.GetTls().GetMode() == networkingv1alpha3.ServerTLSSettings_PASSTHROUGH:
		rules = "tls rules"
	case protocol != "TCP" && protocol != "TLS", s.GetBind() != "":
		return ""
	}
	key, field := gateway.Key, fmt.Sprintf("spec.servers[%d]", n)
	if origin := i.world.Origin(key); origin != nil && origin.Key != key {
		return i.Where(origin.Key, "") + " has a listener for it, and no TLSRoute or TCPRoute attaches to that"
	}
	return fmt.Sprintf("%s does not read HTTP, and no VirtualService has %s for its hosts", i.Where(key, field), rules)
}

// badListeners returns what is wrong with the listeners for some ports of the Gateway of the Gateway API that a gateway
// serves, as the findings say.
func (i *Inspection) badListeners(p *node.Proxy, ports []uint32) string {
	served := kinds.Key{Kind: kinds.KubeGateway, Namespace: p.Namespace, Name: p.Labels[names.LabelGateway]}
	var list []string
	for _, o := range slices.Concat(i.objectsOf(kinds.KubeGateway), i.objectsOf(kinds.ListenerSet)) {
		var numbers []uint32
		switch spec := o.Spec.(type) {
		case *gatewayv1.Gateway:
			if o.Key == served {
				numbers = lists.Map(spec.Spec.Listeners, func(l gatewayv1.Listener) uint32 { return uint32(l.Port) })
			}
		case *gatewayv1.ListenerSet:
			parent := spec.Spec.ParentRef
			if string(parent.Name) == served.Name && (parent.Namespace == nil && o.Namespace == served.Namespace ||
				parent.Namespace != nil && string(*parent.Namespace) == served.Namespace) {
				numbers = lists.Map(spec.Spec.Listeners, func(l gatewayv1.ListenerEntry) uint32 { return uint32(l.Port) })
			}
		}
		for n, number := range numbers {
			if !slices.Contains(ports, number) {
				continue
			}
			for _, d := range i.problems() {
				if d.Object == o.Key.String() && d.Severity == diag.Error && strings.HasPrefix(d.Field, fmt.Sprintf("spec.listeners[%d]", n)) {
					list = append(list, i.Where(o.Key, d.Field)+": "+d.Message)
				}
			}
		}
	}
	return strings.Join(list, ", and ")
}

// clustersOf returns the names of the clusters to which a request is passed on.
func clustersOf(a *trace.Answer) string {
	var text strings.Builder
	for _, t := range a.Targets {
		text.WriteString(t.Cluster + "\n")
	}
	return text.String()
}
