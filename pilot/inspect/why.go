package inspect

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Way is the trace of a request through all proxies.
type Way struct {
	Address  string        `json:"address,omitempty"` // destination address of the connection, if known
	Port     uint32        `json:"port"`
	Method   string        `json:"method"`
	Service  string        `json:"service,omitempty"`
	Notes    []string      `json:"notes,omitempty"` // notes about the proxies or the destination
	Outbound *trace.Answer `json:"outbound"`
	Arrivals []Arrival     `json:"arrivals,omitempty"` // one for each cluster with an endpoint
	Status   int           `json:"status"`             // 200 if it reaches the application, unless Answered; 0 if the connection is closed
	Reason   string        `json:"reason,omitempty"`
	Answered bool          `json:"answered,omitempty"` // whether a proxy answers with that status, and no application does
	Log      *Log          `json:"log,omitempty"`      // what the line of an access log says, if the question is one
	Outside  bool          `json:"outside,omitempty"`  // whether it is passed on unchanged to an address outside the configuration
	// Depends has a sentence for each thing that is not known and may change the answer.
	Depends []string `json:"depends,omitempty"`
}

// Arrival is the trace of a request at one endpoint of a cluster.
type Arrival struct {
	Cluster  string        `json:"cluster"`
	Endpoint string        `json:"endpoint"`
	Pod      string        `json:"pod,omitempty"` // NAME.NAMESPACE; empty if the configuration has no such Pod
	Identity string        `json:"identity,omitempty"`
	MTLS     string        `json:"mtls,omitempty"`   // mutual TLS mode of the workload
	Origins  []string      `json:"policy,omitempty"` // PeerAuthentications that set the mode
	Answer   *trace.Answer `json:"answer,omitempty"` // nil if there is no proxy
	Next     []Arrival     `json:"next,omitempty"`   // where a gateway passes the request on to

	gateway bool
	own     string // identity of the workload
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
		if q.Port, err = i.Port(q); err != nil {
			return nil, err
		}
	}
	if q.Sent && i.server != nil && i.connected(q.Source) == nil {
		return nil, fmt.Errorf("%s: nothing was sent to it: it is not connected to this server", q.Source)
	}
	h := hops{Inspection: i, sent: q.Sent}
	q.TLS = q.TLS || q.HTTP3
	w := &Way{Port: q.Port}
	service := i.addressOf(w, q, from)
	authority := q.Host
	if strings.Contains(authority, ":") {
		authority = "[" + authority + "]"
	}
	if q.TLS && q.Port != 443 || !q.TLS && q.Port != 80 {
		authority += ":" + strconv.Itoa(int(q.Port))
	}
	headers := map[string]string{}
	for k, v := range q.Headers {
		if k = strings.ToLower(k); k == "host" {
			authority = v
			continue
		}
		headers[k] = v
	}
	r := trace.Request{
		Authority: authority, Host: q.Host, Address: w.Address, Port: q.Port, Method: cmp.Or(q.Method, "GET"), Path: cmp.Or(q.Path, "/"),
		Headers: headers, TLS: q.TLS, HTTP3: q.HTTP3,
		Gateway: from.Type == node.Router, Proxyless: from.Generator == node.GRPC, SourceAddress: first(from.IPs), Claims: q.Claims, Now: q.Now,
	}
	if r.Proxyless {
		r.Method, headers["content-type"] = cmp.Or(q.Method, "POST"), "application/grpc"
	}
	w.Method = r.Method
	if q.TLS {
		r.SNI = q.Host
		r.ALPN = []string{"h2", "http/1.1"}
	}
	unresolved := i.unresolved(w, q, from, service)
	switch {
	case unresolved != "":
		w.Outbound = &trace.Answer{Forwarded: r, Reason: unresolved, Steps: []trace.Step{{What: "address", Name: "none", Reason: unresolved}}}
	case !from.proxied:
		w.Outbound = i.directly(w.Address, service, r)
	default:
		sent, err := h.sentTo(from.Proxy, net.JoinHostPort(q.Host, strconv.Itoa(int(q.Port))))
		if err != nil {
			return nil, err
		}
		r.Objects = objects{i, from.Proxy}
		if w.Outbound, err = trace.Follow(sent, r); err != nil {
			return nil, err
		}
		h.explain(w.Outbound, from.Proxy)
		i.passedOn(w, service)
	}
	var err error
	var end outcome
	w.Arrivals, end, err = h.onwards(w.Outbound, w.Address, from.identity, from.proxied, 0)
	w.Status, w.Reason, w.Answered, w.Depends = end.status, end.reason, end.answered, end.depends
	w.Notes = append(w.Notes, h.notes...)
	i.note(w, q, from, service)
	i.named(w.Outbound)
	return w, err
}

// note adds notes about the destination of a request and the proxy that sends it.
func (i *Inspection) note(w *Way, q Query, from *sender, service *registry.Service) {
	note := func(format string, args ...any) { w.Notes = append(w.Notes, fmt.Sprintf(format, args...)) }
	_, isAddress := netip.ParseAddr(q.Host)
	hasPort := hasPort(service, q.Port)
	switch {
	case from.Type == node.Router:
		hasPort = true // hosts of gateways come from routes
	case service == nil && isAddress != nil:
		note("no Service and no ServiceEntry has the host %s: its address is what DNS says%s", q.Host, i.nearHosts(q.Host, from.Namespace))
	case service != nil && !hasPort:
		note("%s has no port %d: it has %s%s", service.Host, q.Port, portsOf(service), ofPods(service, q.Port))
	}
	passed := w.Outbound.Status == 200 && len(w.Outbound.Targets) > 0 && !slices.ContainsFunc(w.Outbound.Targets, func(t trace.Target) bool {
		return !t.Original
	})
	w.Outside = w.Status == 200 && passed && (!hasPort || service.Provider != registry.Kubernetes) &&
		!slices.ContainsFunc(w.Arrivals, func(a Arrival) bool {
			return a.Pod != ""
		})
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

// Reached reports whether the request reaches an application, whatever is not known, and no line of a log says that it
// did not.
func (w *Way) Reached() bool {
	return w.Status == 200 && !w.Answered && len(w.Depends) == 0 && (w.Log == nil || !w.Log.Failed && w.Outbound != nil)
}

// Reaches returns the workloads that the request reaches, as NAME.NAMESPACE, at least if what it depends on is as it
// should be. It is empty if there are none.
func (w *Way) Reaches() []string {
	if w.Status != 200 || w.Answered || w.Log != nil && w.Log.Failed {
		return nil
	}
	var list []string
	var each func([]Arrival)
	each = func(all []Arrival) {
		for _, a := range all {
			if len(a.Next) == 0 && (a.Answer == nil || a.Answer.Status == 200 && !a.Answer.Answered) {
				list = append(list, cmp.Or(a.Pod, a.Endpoint))
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

// named adds the names of objects to the steps of an answer.
func (i *Inspection) named(a *trace.Answer) {
	if a == nil {
		return
	}
	for n := range a.Steps {
		s := &a.Steps[n]
		s.From = cmp.Or(i.Origin(s.Origin), s.From)
		for m := range s.Lost {
			s.Lost[m].From = i.Origin(s.Lost[m].Origin)
		}
	}
}

// maxHops limits the number of gateways through which a request is followed.
const maxHops = 4

// hops follows a request from proxy to proxy.
type hops struct {
	*Inspection
	sent  bool     // whether to use what a server has sent the proxies
	notes []string // what could not be determined
}

// outcome is the final result of a request, with the fields of Way.
type outcome struct {
	status   int
	reason   string
	answered bool
	depends  []string
}

// sentTo returns what a proxy is sent. An application that uses xDS itself asks for one listener by its name.
func (h *hops) sentTo(p *node.Proxy, listener string) (trace.Config, error) {
	if name := p.Name + "." + p.Namespace; h.sent && h.server != nil && h.server.proxies[name] != nil {
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

// onwards follows a request that a proxy passes on, and returns the final result. A proxy of HTTP answers with an error
// if the connection behind it is closed.
func (h *hops) onwards(from *trace.Answer, address, identity string, proxied bool, depth int) (list []Arrival, end outcome, err error) {
	end = outcome{from.Status, from.Reason, from.Answered, from.Depends}
	if from.Status != 200 || from.Answered || depth == maxHops {
		return nil, end, nil
	}
	var failures []string
	answered := 0
	for _, t := range from.Targets {
		a, err := h.arrive(t, from.Forwarded, address, identity)
		if err != nil {
			return nil, end, err
		}
		if a == nil {
			continue
		}
		got := outcome{status: 200}
		if a.Answer != nil {
			got = outcome{a.Answer.Status, a.Answer.Reason, a.Answer.Answered, a.Answer.Depends}
			if got.status == 200 && !got.answered && a.gateway {
				if a.Next, got, err = h.onwards(a.Answer, "", a.own, true, depth+1); err != nil {
					return nil, end, err
				}
			}
		}
		list = append(list, *a)
		at := cmp.Or(a.Pod, a.Endpoint) + ": "
		for _, on := range got.depends {
			end.depends = append(slices.Clip(end.depends), at+on)
		}
		if got.status == 200 && !got.answered {
			continue
		}
		if got.answered {
			answered++
		}
		end.reason = at + got.reason
		failures = append(failures, end.reason)
		if len(failures) == len(from.Targets) {
			end.status, end.answered = got.status, answered == len(failures)
		}
	}
	if end.status == 0 && proxied && from.HTTP {
		end.status = 503
	}
	if end.status == 200 && !end.answered && len(failures) > 0 { // other targets take the request
		end.reason, end.depends = "", append(slices.Clip(end.depends), failures...)
	}
	return list, end, nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// arrive follows a request to the first endpoint of a cluster that takes requests. It returns nil if there is none.
func (h *hops) arrive(t trace.Target, r trace.Request, address, identity string) (*Arrival, error) {
	e := trace.Endpoint{Address: address, Port: r.Port, TLS: t.TLS, SNI: t.SNI, ALPN: t.ALPN}
	if !t.Original || len(t.Endpoints) > 0 {
		at := slices.IndexFunc(t.Endpoints, func(e trace.Endpoint) bool { return e.Health == "" && len(e.Lacks) == 0 && e.Priority == 0 })
		if at < 0 {
			at = slices.IndexFunc(t.Endpoints, func(e trace.Endpoint) bool { return e.Health == "" && len(e.Lacks) == 0 })
		}
		if at < 0 {
			return nil, nil
		}
		e = t.Endpoints[at]
	}
	if e.Address == "" {
		return nil, nil
	}
	a := &Arrival{Cluster: t.Cluster, Endpoint: e.String()}
	workload := h.Snapshot.WorkloadByAddress("", e.Address)
	if workload == nil {
		return a, nil
	}
	a.Pod = workload.Name + "." + workload.Namespace
	p := h.sender(a.Pod)
	if p == nil || !p.proxied {
		return a, nil
	}
	a.own = p.identity
	sent, err := h.sentTo(p.Proxy, names.ProxylessPort(e.Port))
	if err != nil {
		return nil, err
	}
	in := r
	in.Proxyless = p.Generator == node.GRPC
	a.gateway = p.Type == node.Router
	in.Inbound, in.Gateway, in.Identity, in.HTTP3 = true, a.gateway, "", false
	in.Address, in.Port, in.TLS, in.SNI, in.ALPN = e.Address, e.Port, r.TLS, r.SNI, r.ALPN
	if e.TLS != "" {
		in.TLS, in.SNI, in.ALPN = true, e.SNI, e.ALPN
		if len(in.ALPN) == 0 || strings.Contains(e.TLS, "mesh") {
			in.ALPN = slices.Concat(in.ALPN, names.MeshALPN)
		}
		if strings.Contains(e.TLS, "mesh") {
			a.Identity, in.Identity = identity, identity
		}
	}
	in.Objects = objects{h.Inspection, p.Proxy}
	a.MTLS, a.Origins = h.peerPolicy(p.Proxy, e.Port)
	if a.Answer, err = trace.Follow(sent, in); err != nil {
		return nil, err
	}
	h.explain(a.Answer, p.Proxy)
	if n := len(a.Answer.Steps); a.MTLS == securityv1beta1.PeerAuthentication_MutualTLS_STRICT.String() && !in.TLS && n > 0 &&
		a.Answer.Steps[n-1].What == "filter chain" && a.Answer.Steps[n-1].Name == "none" {
		a.Answer.Reason = "it accepts only mutual TLS, and the connection is plaintext"
	}
	h.named(a.Answer)
	return a, nil
}

// peerPolicy returns the mutual TLS mode of a workload at a port, and the objects that set it, the most specific one
// first.
func (i *Inspection) peerPolicy(p *node.Proxy, port uint32) (mode string, origins []string) {
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
		origins = append(origins, i.Where(o.Key, ""))
		spec := o.Spec.(*securityv1beta1.PeerAuthentication)
		m := spec.GetMtls().GetMode()
		if at := spec.GetPortLevelMtls()[port]; at != nil && rank(o) == 2 {
			m = at.GetMode()
		}
		if mode == "" && m != securityv1beta1.PeerAuthentication_MutualTLS_UNSET {
			mode = m.String()
		}
	}
	return cmp.Or(mode, "PERMISSIVE"), origins
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

// key returns the key of the object that a decision comes from, or a zero key if it is not known.
func (i *Inspection) key(from trace.Origin) kinds.Key {
	if i.paths == nil {
		i.paths = map[string]kinds.Key{}
		for _, o := range i.world.Objects() {
			if o.Kind.Istio {
				i.paths[o.Path()] = o.Key
			}
		}
	}
	return i.paths[from.Path]
}

// Origin returns the object and its rule that a decision comes from, or "" if no object is named.
func (i *Inspection) Origin(from trace.Origin) string {
	if from.Path == "" {
		return ""
	}
	k := i.key(from)
	if k.Kind == nil {
		return from.Path
	}
	field := from.Field
	if vs, ok := i.world.Object(k).Spec.(*networkingv1alpha3.VirtualService); ok && field == "" {
		field = ruleOf(vs, from)
		if o := i.world.Origin(k); o != nil && o.Key != k {
			return i.madeOf(o.Key, vs, field)
		}
	}
	return i.Where(k, field)
}

// ruleOf returns the rule of a VirtualService from which a route was made. It is known if each match has become a
// route.
func ruleOf(vs *networkingv1alpha3.VirtualService, from trace.Origin) string {
	var all []string
	for n, h := range vs.GetHttp() {
		if len(h.GetMatch()) == 0 {
			all = append(all, fmt.Sprintf("spec.http[%d]", n))
		}
		for m := range h.GetMatch() {
			all = append(all, fmt.Sprintf("spec.http[%d].match[%d]", n, m))
		}
	}
	if len(all) != from.Count || from.Place >= len(all) {
		return ""
	}
	return all[from.Place]
}
