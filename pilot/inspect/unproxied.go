package inspect

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
	"github.com/istiod-lite/istiod-lite/registry"
)

// isClusterIP reports whether the nodes of a cluster translate an address to the endpoints of a Service.
func isClusterIP(s *registry.Service, address string) bool {
	return s != nil && s.Provider == registry.Kubernetes && slices.Contains(s.Addresses, address)
}

// passedOn says where a connection to an address of a Service arrives if no proxy changes it: the nodes of the cluster
// translate the address to a ready endpoint. There is no answer at a port that the Service does not have, or at an
// address that only proxies know.
func (i *Inspection) passedOn(w *Way, from *sender, s *registry.Service) {
	a := w.Outbound
	isPassed := func(t trace.Target) bool { return t.Original && !strings.Contains(t.Cluster, "|") }
	if s == nil || w.Address == "" || a.Status != 200 || a.Answered || len(a.Targets) == 0 ||
		slices.ContainsFunc(a.Targets, func(t trace.Target) bool {
			return !isPassed(t)
		}) {
		return
	}
	reason := ""
	switch {
	case isClusterIP(s, w.Address):
		ready := i.ready(s, w.Port)
		for n := range a.Targets {
			a.Targets[n].Endpoints = ready
		}
		if reason = noAnswer(s, w.Address, w.Port, ready); hasPort(s, w.Port) {
			cause := "The port may have another protocol"
			if a.HTTP && !slices.Contains(i.fullNames(w.called, from.Namespace), s.Host) {
				cause = "The header Host is " + w.called + ", by which proxies choose the route"
			}
			w.Notes = append(w.Notes, fmt.Sprintf("the proxy passes the connection on unchanged, as if %s were not a service of the mesh: "+
				"no route and no mutual TLS apply. %s", s.Host, cmp.Or(i.unseen(from, s, w.Port), cause)))
		}
	case slices.Contains(s.AutoAddress, w.Address):
		reason = fmt.Sprintf("there is no answer at %s: only proxies know this address, and the connection is passed on unchanged",
			net.JoinHostPort(w.Address, strconv.Itoa(int(w.Port))))
	}
	if reason == "" {
		return
	}
	a.Status, a.Reason = 0, reason
	if a.HTTP {
		a.Status = 503
	}
}

// closedOut adds to an answer which setting lets no connection out of the mesh, if that is the reason of the answer.
func (i *Inspection) closedOut(w *Way, from *sender, s *registry.Service) {
	a := w.Outbound
	if !slices.ContainsFunc(a.Steps, func(s trace.Step) bool {
		return s.What == "route" && s.Name == names.BlockAll || s.What == "cluster" && s.Name == names.BlackHoleCluster
	}) {
		return
	}
	scope, _ := i.translator.Visible(i.Snapshot, from.Proxy)
	by := "outboundTrafficPolicy of the mesh"
	if scope.Sidecar != nil && scope.Sidecar.Spec.(*networkingv1.Sidecar).GetOutboundTrafficPolicy() != nil {
		by = i.Where(scope.Sidecar.Key, "spec.outboundTrafficPolicy")
	}
	a.Reason += ": the proxy cannot tell that the connection is for a service that it is sent, and " + by + " lets no others out"
	if !hasPort(s, w.Port) {
		return
	}
	if hidden := i.unseen(from, s, w.Port); hidden != "" {
		w.Notes = append(w.Notes, fmt.Sprintf("the proxy of %s.%s is not sent %s: %s", from.Name, from.Namespace, i.objectOf(s), hidden))
	}
}

// egressProxyOf returns the field of the Sidecar that names an egressProxy for a proxy, or "".
func (i *Inspection) egressProxyOf(from *sender) string {
	scope, _ := i.translator.Visible(i.Snapshot, from.Proxy)
	if scope.Sidecar == nil || scope.Sidecar.Spec.(*networkingv1.Sidecar).GetOutboundTrafficPolicy().GetEgressProxy() == nil {
		return ""
	}
	return i.Where(scope.Sidecar.Key, "spec.outboundTrafficPolicy.egressProxy")
}

// ready returns the endpoints to which the nodes of a cluster send connections to a Service.
func (i *Inspection) ready(s *registry.Service, port uint32) (list []trace.Endpoint) {
	for _, p := range s.Ports {
		if p.Number != port || p.Protocol == protocols.UDP {
			continue
		}
		for _, e := range i.Snapshot.Endpoints(s.Key()).ByPort(p.Name) {
			if e.Health == registry.Healthy || s.PublishNotReady {
				list = append(list, trace.Endpoint{Address: e.Address, Port: e.Port})
			}
		}
	}
	return list
}

// noAnswer returns why a connection to a cluster IP is not answered, or "" if it is.
func noAnswer(s *registry.Service, address string, port uint32, ready []trace.Endpoint) string {
	switch {
	case !hasPort(s, port):
		return fmt.Sprintf("there is no answer at %s: %s has no port %d for TCP", net.JoinHostPort(address, strconv.Itoa(int(port))),
			s.Host, port)
	case len(ready) == 0:
		return fmt.Sprintf("no endpoint of %s is ready at port %d", s.Host, port)
	}
	return ""
}

// directly returns the answer for a request that no proxy takes, and says why none does. It goes to an endpoint of the
// service, or to its original address.
func (i *Inspection) directly(address string, s *registry.Service, r trace.Request, reason string) *trace.Answer {
	t := trace.Target{Cluster: address, Share: 100, Original: true}
	refusal := ""
	if isClusterIP(s, address) {
		t.Cluster, t.Endpoints = s.Host, i.ready(s, r.Port)
		refusal = noAnswer(s, address, r.Port, t.Endpoints)
	}
	a := unchanged(r, t, reason+": the connection leaves unchanged, and no route or policy of the client applies")
	if refusal != "" {
		a.Status, a.Reason = 0, refusal
	}
	return a
}

// unchanged returns the answer for a request that no proxy takes.
func unchanged(r trace.Request, t trace.Target, reason string) *trace.Answer {
	return &trace.Answer{Status: 200, Forwarded: r, Targets: []trace.Target{t},
		Steps: []trace.Step{{What: "proxy", Name: "none", Reason: reason}}}
}

// isOwn reports whether a host is the Pod that calls it, by its address or by its name in a headless service. Its
// connections to itself reach no proxy.
func isOwn(w *Way, host string, from *sender) bool {
	if from.Type == node.Router || from.Generator == node.GRPC {
		return false
	}
	ip, err := netip.ParseAddr(loopback(host))
	return err == nil && ip.IsLoopback() || slices.Contains(from.IPs, host) || slices.Contains(from.IPs, w.Address)
}

// loopback returns the address for localhost, and any other host itself.
func loopback(host string) string {
	if host == "localhost" {
		return "127.0.0.1"
	}
	return host
}

// avoids returns why the annotations of a Pod let a connection leave without its proxy, or "" if they do not.
func avoids(from *sender, address string, port uint32) string {
	if from.Type == node.Router || from.Generator == node.GRPC {
		return ""
	}
	ip, err := netip.ParseAddr(address)
	within := func(annotation string) bool {
		return slices.ContainsFunc(strings.Split(from.Annotations[annotation], ","), func(text string) bool {
			p, failure := netip.ParsePrefix(strings.TrimSpace(text))
			return strings.TrimSpace(text) == "*" || err == nil && failure == nil && p.Contains(ip.Unmap())
		})
	}
	if from.Interception == node.None {
		return "the proxy intercepts no connections, as its interception mode is " + string(node.None)
	}
	_, chooses := from.Annotations[names.AnnotationIncludeOutboundIPRanges]
	reason := ""
	switch {
	case names.ListsPort(from.Annotations[names.AnnotationExcludeOutboundPorts], port):
		reason = names.AnnotationExcludeOutboundPorts
	case names.ListsPort(from.Annotations[names.AnnotationIncludeOutboundPorts], port):
	case within(names.AnnotationExcludeOutboundIPRanges):
		reason = names.AnnotationExcludeOutboundIPRanges
	case chooses && address != "" && !within(names.AnnotationIncludeOutboundIPRanges):
		reason = names.AnnotationIncludeOutboundIPRanges
	}
	if reason == "" {
		return ""
	}
	return "the annotation " + reason + " of the Pod lets such connections leave without its proxy"
}
