package inspect

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Way is the trace of a request through all proxies.
type Way struct {
	Address  string        `json:"address,omitempty"` // destination address of the connection, if known
	Port     uint32        `json:"port"`
	Method   string        `json:"method"` // empty for a connection that carries another protocol than HTTP
	Service  string        `json:"service,omitempty"`
	Notes    []string      `json:"notes,omitempty"` // notes about the proxies or the destination
	Outbound *trace.Answer `json:"outbound"`
	Arrivals []Arrival     `json:"arrivals,omitempty"` // one for each cluster with an endpoint
	Status   int           `json:"status"`             // 200 if it reaches the application, unless Answered; 0 if the connection is closed
	Reason   string        `json:"reason,omitempty"`
	Answered bool          `json:"answered,omitempty"` // whether a proxy answers with that status, and no application does
	Log      *Log          `json:"log,omitempty"`      // what the line of an access log says, if the question is one
	Outside  bool          `json:"outside,omitempty"`  // whether it is passed on unchanged to an address outside the configuration
	// Depends says what the answer depends on and cannot be known here, each in a sentence that names an object.
	Depends []string `json:"depends,omitempty"`

	called string // host of the request, without a port
}

// Arrival is the trace of a request at one endpoint of a cluster, and at all other endpoints that give the same answer.
type Arrival struct {
	Cluster  string        `json:"cluster"`
	Endpoint string        `json:"endpoint"`
	Pod      string        `json:"pod,omitempty"`     // NAME.NAMESPACE; empty if the configuration has no such Pod
	Others   []string      `json:"others,omitempty"`  // the other endpoints: their Pods, or addresses
	Failure  string        `json:"failure,omitempty"` // why no connection succeeds where there is no proxy
	Identity string        `json:"identity,omitempty"`
	Unknown  bool          `json:"unknownIdentity,omitempty"` // whether the certificate of the mesh has an identity that is not known
	MTLS     string        `json:"mtls,omitempty"`            // mutual TLS mode of the workload
	Origins  []string      `json:"policy,omitempty"`          // PeerAuthentications that set the mode
	Answer   *trace.Answer `json:"answer,omitempty"`          // nil if there is no proxy
	Next     []Arrival     `json:"next,omitempty"`            // where a gateway passes the request on to

	policies []kinds.Key // the objects of Origins
	tls      bool        // whether the proxy that calls begins TLS
}

// Why follows a request from the proxy that sends it to the applications that answer.
func (i *Inspection) Why(q Query) (*Way, error) {
	if i.Snapshot == nil {
		return nil, i.Refusal
	}
	if q.Log != "" {
		return i.whyLog(q)
	}
	from := i.sender(q.Source)
	if from == nil {
		return nil, fmt.Errorf("%s: %w%s", q.Source, errNoSender, diag.NearNames(q.Source, i.Workloads()))
	}
	if q.Port == 0 {
		var err error
		if q.Port, err = i.portOf(q, from); err != nil {
			return nil, err
		}
	}
	if q.Sent && i.server != nil && i.connected(q.Source) == nil {
		return nil, fmt.Errorf("%s: nothing was sent to it: it is not connected to this server", q.Source)
	}
	h := hops{Inspection: i, query: q}
	q.TLS = q.TLS || q.HTTP3
	w := &Way{Port: q.Port}
	service := i.addressOf(w, q, from)
	r := q.request()
	r.Address, r.Gateway, r.Proxyless = w.Address, from.Type == node.Router, from.Generator == node.GRPC
	own := cmp.Or(q.FromAddress, first(from.IPs))
	r.SourceAddress = own
	if r.Gateway { // its client is not known
		own, r.OwnAddress, r.SourceAddress = first(from.IPs), first(from.IPs), q.FromAddress
	}
	if r.Proxyless {
		r.Method, r.Headers["content-type"] = cmp.Or(q.Method, "POST"), "application/grpc"
	}
	w.Method = q.method(r.Method)
	w.called, _ = splitAuthority(r.Authority)
	if q.TLS {
		r.SNI = q.Host
		r.ALPN = []string{"h2", "http/1.1"}
	}
	sent, itself, err := h.sends(w, from, service, r)
	if err != nil || itself {
		return w, err
	}
	i.named(w.Outbound, sent)
	var end outcome
	w.Arrivals, end, err = h.onwards(w.Outbound, w.Address, passer{own, from.identity, from.proxied}, 0)
	w.take(end)
	w.Notes = append(w.Notes, h.notes...)
	i.note(w, q, from, service)
	if err == nil && from.Type != node.Router && from.Generator != node.GRPC {
		err = i.atOthers(w, q, service, from)
	}
	return w, err
}

// sends follows a request until it leaves the Pod of its sender, and returns what the sender's proxy is sent. itself
// reports whether the Pod calls itself.
func (h *hops) sends(w *Way, from *sender, service *registry.Service, r trace.Request) (sent trace.Config, itself bool, err error) {
	q := h.query
	if from.proxied {
		if sent, err = h.sentTo(from.Proxy, net.JoinHostPort(q.Host, strconv.Itoa(int(r.Port)))); err != nil {
			return nil, false, err
		}
	}
	bound := sent.Binds(loopback(q.Host), r.Port)
	unresolved := h.unresolved(w, q, from, service)
	switch {
	case unresolved != "":
		w.Outbound = &trace.Answer{Forwarded: r, Reason: unresolved, Steps: []trace.Step{{What: "address", Name: "none", Reason: unresolved}}}
	case isOwn(w, q.Host, from) && !bound:
		at := net.JoinHostPort(q.Host, strconv.Itoa(int(r.Port)))
		w.Status, w.Arrivals = 200, []Arrival{{Cluster: q.Host, Endpoint: at, Pod: q.Source}}
		w.Outbound = unchanged(r, trace.Target{Cluster: q.Host, Share: 100, Original: true},
			q.Host+" is the Pod itself: a proxy takes no such connections, not even those that arrive")
		return nil, true, nil
	case !from.proxied:
		w.Outbound = h.directly(w.Address, service, r, "the Pod has none")
	case avoids(from, w.Address, r.Port) != "":
		w.Outbound = h.directly(w.Address, service, r, avoids(from, w.Address, r.Port))
	default:
		r.Objects = objects{h.Inspection, from.Proxy}
		if r.Gateway {
			w.Outbound, err = h.atGateway(sent, r, from.Proxy)
		} else {
			w.Outbound, err = trace.Follow(sent, r)
		}
		if err != nil {
			return nil, false, err
		}
		h.explain(w.Outbound, from.Proxy)
		h.passedOn(w, from, service)
		h.closedOut(w, from, service)
	}
	return sent, false, nil
}

// note adds notes about the destination of a request and the proxy that sends it.
func (i *Inspection) note(w *Way, q Query, from *sender, service *registry.Service) {
	note := func(format string, args ...any) { w.Notes = append(w.Notes, fmt.Sprintf(format, args...)) }
	_, isAddress := netip.ParseAddr(q.Host)
	hasPort := hasPort(service, q.Port)
	passed := len(w.Outbound.Targets) > 0 && w.mayReach() && !slices.ContainsFunc(w.Outbound.Targets, func(t trace.Target) bool {
		return !t.Original
	})
	unknown := !slices.ContainsFunc(w.Outbound.Targets, func(t trace.Target) bool { return strings.Contains(t.Cluster, "|") })
	switch {
	case from.Type == node.Router: // hosts of gateways come from routes
		hasPort = true
	case service == nil && isAddress != nil && unknown:
		if others := i.others(from, q.Host, q.Port); len(others) > 0 {
			w.Notes = append(w.Notes, others...)
		} else {
			note("no Service and no ServiceEntry has the host %s: its address is what DNS says%s", q.Host, i.nearHosts(q.Host, from.Namespace))
		}
	case service != nil && service.Resolution == registry.Alias && len(service.Ports) == 0: // it has the ports of its target
	case service != nil && !hasPort:
		note("%s has no port %d: it has %s%s", service.Host, q.Port, portsOf(service), ofPods(service, q.Port))
		w.Notes = append(w.Notes, i.others(from, q.Host, q.Port)...)
	case service != nil && from.proxied && from.Generator != node.GRPC && !q.TLS:
		if p := service.Port(q.Port); w.Outbound.HTTP && !p.Protocol.IsHTTP() && !p.Protocol.Sniffed() {
			note("port %d of %s is %s, and the listener that takes the connection reads HTTP, as other services have this port for HTTP: "+
				"an address of its own keeps it apart", p.Number, service.Host, p.Protocol)
		} else if !w.Outbound.HTTP && p.Protocol.IsHTTP() && !unknown {
			note("port %d of %s is %s, and the listener that takes the connection does not read HTTP, as another service has this port for "+
				"another protocol", p.Number, service.Host, p.Protocol)
		}
	}
	switch other := i.hiddenBy(w, service); {
	case other == "" || from.Type == node.Router || isAddress == nil:
	case service == nil && i.egressProxyOf(from) != "":
		note("the connection goes to %s, the egressProxy of %s", other, i.egressProxyOf(from))
	case service == nil:
		note("the connection goes to %s: it has port %d for every address, and no service has the host %s", other, q.Port, q.Host)
	default:
		note("the connection goes to %s: it has port %d for every address too, and comes first. Give %s an address of its own", other, q.Port,
			service.Host)
	}
	w.Notes = append(append(w.Notes, i.unusedRoutes(w, from, service)...), i.unusedPolicies(from)...)
	w.Outside = passed && (!hasPort || service == nil || service.Provider != registry.Kubernetes || service.Resolution == registry.Alias) &&
		!slices.ContainsFunc(w.Arrivals, func(a Arrival) bool {
			return a.Pod != ""
		})
	i.outside(w, q, from, service, hasPort, unknown)
	if i.server == nil {
		return
	}
	said := map[string]bool{}
	for _, name := range append([]string{q.Source}, reached(w.Arrivals)...) {
		if s := i.sender(name); s == nil || !s.proxied || said[name] {
			continue
		}
		said[name] = true
		if p := i.connected(name); p == nil {
			note("the proxy of %s is not connected to this server, so its configuration is not known", name)
		} else if state := i.server.State(p.Name + "." + p.Namespace); state != "" {
			note("the proxy of %s %s", name, state)
		}
	}
}

// outside adds what the answer depends on outside the mesh. unknown says that the proxy knows no service for the
// connection.
func (i *Inspection) outside(w *Way, q Query, from *sender, service *registry.Service, hasPort, unknown bool) {
	_, failure := netip.ParseAddr(q.Host)
	isAddress := failure == nil
	depends := func(format string, args ...any) { w.Depends = append(w.Depends, fmt.Sprintf(format, args...)) }
	ranges := rangesOf(service)
	switch {
	case service != nil && hasPort && len(ranges) > 0 && w.Address == "" && unknown && from.Type != node.Router:
		depends("DNS outside the mesh has the address of %s: the connection goes to %s if it is in %s", q.Host, i.objectOf(service),
			strings.Join(ranges, ", "))
	case !w.Outside:
	case !unknown:
		depends("whether anything answers at %s is not known here", cmp.Or(w.Address, q.Host))
	case isAddress:
		depends("it leaves the mesh to %s, which is no Service, ServiceEntry or Pod", q.Host)
	case service != nil && service.Resolution == registry.Alias:
		depends("it leaves the mesh to the address that DNS has for %s, the externalName of %s", service.ExternalName, i.objectOf(service))
	case service != nil && hasPort:
		depends("it leaves the mesh to the address that DNS has for %s: proxies cannot tell it from other connections to port %d", q.Host, q.Port)
	case service != nil:
		depends("it leaves the mesh to the address that DNS has for %s: port %d is none of the mesh", q.Host, q.Port)
	default:
		depends("it leaves the mesh to the address that DNS has for %s, if it has one", q.Host)
	}
	if outside := i.resolvedOutside(w, q, from, service); outside != "" && w.mayReach() && !(w.Outside && unknown) {
		w.Depends = append(w.Depends, outside)
	}
}

// Reached reports whether the request reaches an application, whatever Envoy may choose and others may answer, and no
// line of a log says that it did not.
func (w *Way) Reached() bool {
	return w.mayReach() && len(w.Depends) == 0 && (w.Log == nil || w.Outbound != nil)
}

// mayReach reports whether the request reaches an application, as far as it is known.
func (w *Way) mayReach() bool {
	return w.Status == 200 && !w.Answered && (w.Log == nil || !w.Log.Failed)
}

// Reaches returns the workloads that the request may reach, as NAME.NAMESPACE. It is empty if there are none.
func (w *Way) Reaches() []string {
	if !w.mayReach() {
		return nil
	}
	var list []string
	var each func([]Arrival)
	each = func(all []Arrival) {
		for _, a := range all {
			if len(a.Next) == 0 && a.Failure == "" && (a.Answer == nil || a.Answer.Status == 200 && !a.Answer.Answered) {
				list = append(append(list, cmp.Or(a.Pod, a.Endpoint)), a.Others...)
			}
			each(a.Next)
		}
	}
	each(w.Arrivals)
	slices.Sort(list)
	return slices.Compact(list)
}

// reached returns the workloads that a request reaches.
func reached(list []Arrival) (names []string) {
	for _, a := range list {
		if a.Pod != "" {
			names = append(names, a.Pod)
		}
		names = append(names, reached(a.Next)...)
	}
	return names
}

// maxHops limits the number of gateways through which a request is followed.
const maxHops = 4

// hops follows a request from proxy to proxy.
type hops struct {
	*Inspection
	query Query
	notes []string // what could not be determined
}

// sentTo returns what a proxy is sent. An application that uses xDS itself asks for one listener by its name.
func (h *hops) sentTo(p *node.Proxy, listener string) (trace.Config, error) {
	if name := p.Name + "." + p.Namespace; h.query.Sent && h.server != nil && h.server.proxies[name] != nil {
		config := trace.Config{}
		for _, typeURL := range []string{envoy.ListenerType, envoy.RouteType, envoy.VirtualHostType, envoy.ClusterType, envoy.EndpointType,
			envoy.ExtensionType} {
			list, ok := h.server.Sent(name, typeURL)
			if !ok && typeURL == envoy.ListenerType {
				return nil, fmt.Errorf("%s: it has not asked for listeners yet", name)
			}
			config[typeURL] = list
		}
		return config, h.secrets(config, p)
	}
	all, err := h.resources(h.translator, p, h.translator.ResolveCohort(h.Snapshot, p), []string{listener})
	if err != nil {
		return nil, err
	}
	return trace.Config(all), h.secrets(all, p)
}

// passer passes a request on to the next proxy, or to the application.
type passer struct {
	address  string // empty if it is not known
	identity string // that its certificate shows in mutual TLS
	proxied  bool
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// peerPolicy returns the mutual TLS mode of a workload at a port, and the objects that set it, the most specific one
// first.
func (i *Inspection) peerPolicy(p *node.Proxy, port uint32) (mode string, policies []kinds.Key) {
	objects := i.translator.Selected(i.Snapshot, p, kinds.PeerAuthentication)
	rank := func(o *kinds.Object) int {
		switch spec := o.Spec.(*securityv1beta1.PeerAuthentication); {
		case len(spec.GetSelector().GetMatchLabels()) > 0:
			return 2
		case o.Namespace == p.Namespace && o.Namespace != i.Snapshot.RootNamespace():
			return 1
		}
		return 0
	}
	slices.SortStableFunc(objects, func(a, b *kinds.Object) int { return cmp.Compare(rank(b), rank(a)) })
	for _, o := range objects {
		policies = append(policies, o.Key)
		spec := o.Spec.(*securityv1beta1.PeerAuthentication)
		m := spec.GetMtls().GetMode()
		if rank(o) == 2 {
			m = cmp.Or(spec.GetPortLevelMtls()[port].GetMode(), m)
		}
		if mode == "" && m != securityv1beta1.PeerAuthentication_MutualTLS_UNSET {
			mode = m.String()
		}
	}
	return cmp.Or(mode, "PERMISSIVE"), policies
}

// Where returns the position of a field of an object: Kind namespace/name (file:line:column). A last good version has
// no position.
func (i *Inspection) Where(k kinds.Key, field string) string {
	text := k.String()
	if field != "" {
		text += " " + field
	}
	if place, known := i.places[text]; known {
		return place
	}
	o := i.world.Object(k)
	if o == nil || o.Position == "" || k.IsLastGood() {
		return text
	}
	d := i.world.Located([]diag.Diagnostic{diag.Diagnostic{Object: k.String(), Field: field}.At(o.Position)})[0]
	lists.Put(&i.places, text, fmt.Sprintf("%s (%s:%d:%d)", text, d.File, d.Line, d.Column))
	return i.places[text]
}
