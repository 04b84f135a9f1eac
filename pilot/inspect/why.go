package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/why"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// Query is a request that somebody asks about.
type Query struct {
	Source  string // the proxy that sends it: NAME.NAMESPACE
	Host    string
	Port    uint32
	Method  string
	Path    string
	Headers map[string]string
	TLS     bool // the application speaks TLS itself
}

// Way is the way of a request.
type Way struct {
	Address  string      `json:"address,omitempty"` // where the connection goes, so far as that is known
	Service  string      `json:"service,omitempty"`
	Outbound *why.Answer `json:"outbound"`
	Arrivals []Arrival   `json:"arrivals,omitempty"` // one for each cluster with an endpoint
	Status   int         `json:"status"`             // 200: it reaches the application; 0: the connection is closed
	Reason   string      `json:"reason,omitempty"`
}

// Arrival is what becomes of a request at one endpoint of a cluster.
type Arrival struct {
	Cluster  string      `json:"cluster"`
	Endpoint string      `json:"endpoint"`
	Pod      string      `json:"pod,omitempty"` // NAME.NAMESPACE; empty: no Pod of the configuration
	Identity string      `json:"identity,omitempty"`
	MTLS     string      `json:"mtls,omitempty"`   // what the workload asks for
	Origins  []string    `json:"policy,omitempty"` // the PeerAuthentications that say so
	Answer   *why.Answer `json:"answer,omitempty"` // nil: there is no proxy
	Next     []Arrival   `json:"next,omitempty"`   // of a gateway: where it passes the request on to

	gateway bool
}

// Why follows a request from the proxy that sends it to the applications that answer.
func (i *Inspection) Why(q Query) (*Way, error) {
	if i.Snapshot == nil {
		return nil, i.Refusal
	}
	pod := i.podOf(q.Source)
	if pod == nil {
		return nil, fmt.Errorf("there is no Pod %s", q.Source)
	}
	h := hops{Inspection: i, proxies: i.proxies()}
	source := h.proxies[q.Source]
	proxied := source != nil
	if !proxied {
		source = i.proxy(pod)
	}
	w := &Way{}
	service := i.addressOf(w, q, source)
	authority := q.Host
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
	r := why.Request{
		Authority: authority, Address: w.Address, Port: q.Port, Method: cmp.Or(q.Method, "GET"), Path: cmp.Or(q.Path, "/"), Headers: headers, TLS: q.TLS,
		Gateway: source.Type == node.Router, SourceAddress: first(source.IPs),
	}
	if q.TLS {
		r.SNI = q.Host
		r.ALPN = []string{"h2", "http/1.1"}
	}
	if !proxied {
		w.Outbound = &why.Answer{Status: 200, Forwarded: r, Targets: i.directly(w.Address, service, q.Port), Steps: []why.Step{{What: "proxy", Name: "none", Reason: "the Pod has none: the connection goes out as it is"}}}
	} else {
		sent, err := i.sentTo(source)
		if err != nil {
			return nil, err
		}
		if w.Outbound, err = why.Follow(sent, r); err != nil {
			return nil, err
		}
	}
	var err error
	w.Arrivals, w.Status, w.Reason, err = h.onwards(w.Outbound, w.Address, i.identityOf(pod), proxied, 0)
	return w, err
}

// identityOf returns the identity of a Pod.
func (i *Inspection) identityOf(pod *kinds.Object) string {
	return registry.SPIFFE(i.Snapshot.Mesh.GetTrustDomain(), pod.Namespace, kube.FactsOfPod(pod).ServiceAccount)
}

// directly returns where a connection goes that no proxy takes: to an endpoint of the service, or where it was meant to
// go.
func (i *Inspection) directly(address string, service *registry.Service, port uint32) []why.Target {
	t := why.Target{Cluster: address, Share: 100, Original: true}
	if service == nil {
		return []why.Target{t}
	}
	t.Cluster = service.Host
	for n := range service.Ports {
		if service.Ports[n].Number != port {
			continue
		}
		for _, e := range i.Snapshot.Endpoints(service.Key()).ByPort(service.Ports[n].Name) {
			t.Endpoints = append(t.Endpoints, why.Endpoint{Address: e.Address, Port: e.Port})
		}
	}
	return []why.Target{t}
}

// maxHops bounds how many gateways a request is followed through.
const maxHops = 4

// hops follows a request from proxy to proxy.
type hops struct {
	*Inspection
	proxies map[string]*node.Proxy
}

// onwards follows what a proxy passes on. It returns what becomes of it in the end. A proxy of HTTP answers for a
// connection that is closed behind it.
func (h hops) onwards(from *why.Answer, address, identity string, proxied bool, depth int) (list []Arrival, status int, reason string, err error) {
	if from.Status != 200 || depth == maxHops {
		return nil, from.Status, from.Reason, nil
	}
	status, reason = 200, from.Reason
	refused := 0
	for _, t := range from.Targets {
		a, err := h.arrive(t, from.Forwarded, address, identity)
		if err != nil {
			return nil, 0, "", err
		}
		if a == nil {
			continue
		}
		got, why := 200, ""
		if a.Answer != nil {
			got, why = a.Answer.Status, a.Answer.Reason
			if got == 200 && a.gateway {
				if a.Next, got, why, err = h.onwards(a.Answer, "", h.identityOf(h.podOf(a.Pod)), true, depth+1); err != nil {
					return nil, 0, "", err
				}
			}
		}
		list = append(list, *a)
		if got != 200 {
			refused++
			reason = fmt.Sprintf("%s: %s", cmp.Or(a.Pod, a.Endpoint), why)
			if refused == len(from.Targets) {
				status = got
			}
		}
	}
	if status == 0 && proxied && from.HTTP {
		status = 503
	}
	return list, status, reason, nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// podOf returns the Pod of a proxy.
func (i *Inspection) podOf(proxy string) *kinds.Object {
	at := strings.LastIndexByte(proxy, '.')
	if at < 0 {
		return nil
	}
	return i.world.Object(kinds.Key{Kind: kinds.Pod, Name: proxy[:at], Namespace: proxy[at+1:]})
}

func (i *Inspection) sentTo(p *node.Proxy) (why.Config, error) {
	all, err := i.resources(i.translator, i.translator.ResolveCohort(i.Snapshot, p))
	return why.Config(all), err
}

// addressOf looks up where the connection goes, as the application's DNS would. It returns the service, if there is
// one.
func (i *Inspection) addressOf(w *Way, q Query, source *node.Proxy) *registry.Service {
	if _, err := netip.ParseAddr(q.Host); err == nil {
		w.Address = q.Host
		for s := range i.Snapshot.EachService {
			if slices.Contains(s.Addresses, q.Host) {
				w.Service = s.Host
				return s
			}
		}
		return nil
	}
	host := strings.TrimSuffix(strings.ToLower(q.Host), ".")
	for _, name := range []string{host, host + "." + source.Namespace + ".svc." + i.o.Domain, host + ".svc." + i.o.Domain, host + "." + i.o.Domain} {
		for s := range i.Snapshot.ServicesByHost(name) {
			if v := s.ClusterVersion(""); v != nil {
				s = v
			}
			w.Service = s.Host
			switch {
			case len(s.Addresses) > 0 && !strings.Contains(s.Addresses[0], "/"):
				w.Address = s.Addresses[0]
			case len(s.AutoAddress) > 0:
				w.Address = s.AutoAddress[0]
			case s.Headless:
				for _, e := range i.Snapshot.Endpoints(s.Key()).List {
					w.Address = e.Address
					break
				}
			}
			return s
		}
	}
	return nil
}

// arrive follows a request to an endpoint of a cluster, the first that takes requests. It returns nil where there is
// none.
func (i hops) arrive(t why.Target, r why.Request, address, identity string) (*Arrival, error) {
	e := why.Endpoint{Address: address, Port: r.Port}
	if !t.Original || len(t.Endpoints) > 0 {
		at := slices.IndexFunc(t.Endpoints, func(e why.Endpoint) bool { return e.Health == "" && e.Priority == 0 })
		if at < 0 {
			at = slices.IndexFunc(t.Endpoints, func(e why.Endpoint) bool { return e.Health == "" })
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
	workload := i.Snapshot.WorkloadByAddress("", e.Address)
	if workload == nil {
		return a, nil
	}
	a.Pod = workload.Name + "." + workload.Namespace
	p := i.proxies[a.Pod]
	if p == nil {
		return a, nil
	}
	sent, err := i.sentTo(p)
	if err != nil {
		return nil, err
	}
	in := r
	a.gateway = p.Type == node.Router
	in.Inbound, in.Gateway, in.Identity = true, a.gateway, ""
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
	a.MTLS, a.Origins = i.peerPolicy(p, e.Port)
	a.Answer, err = why.Follow(sent, in)
	return a, err
}

// peerPolicy returns which mutual TLS a workload asks for at a port, and the objects that say so, the most particular
// one first.
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

// Where says where a field of an object is: Kind namespace/name (file:line:column).
func (i *Inspection) Where(k kinds.Key, field string) string {
	text := k.String()
	if field != "" {
		text += " " + field
	}
	o := i.world.Object(k)
	if o == nil || o.Position == "" {
		return text
	}
	d := i.world.Located([]diag.Diagnostic{diag.Diagnostic{Object: k.String(), Field: field}.At(o.Position)})[0]
	return fmt.Sprintf("%s (%s:%d:%d)", text, d.File, d.Line, d.Column)
}

// Origin says which object, and which rule of it, a decision comes from; empty where no object is named.
func (i *Inspection) Origin(from why.Origin) string {
	if from.Path == "" {
		return ""
	}
	var k kinds.Key
	for _, o := range i.world.Objects() {
		if o.Kind.Istio && o.Path() == from.Path {
			k = o.Key
		}
	}
	if k.Kind == nil {
		return from.Path
	}
	field := from.Field
	if vs, ok := i.world.Object(k).Spec.(*networkingv1alpha3.VirtualService); ok && field == "" {
		field = ruleOf(vs, from)
	}
	return i.Where(k, field)
}

// ruleOf returns the rule of a VirtualService that a route was made of. It is known where each match has become a
// route.
func ruleOf(vs *networkingv1alpha3.VirtualService, from why.Origin) string {
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

// errNoHost says how a target is written.
var errNoHost = errors.New("write HOST:PORT, for example reviews:9080")

// ParseTarget reads HOST:PORT, or a URL.
func ParseTarget(text string) (q Query, err error) {
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		rest, scheme = text, ""
	}
	if at := strings.IndexByte(rest, '/'); at >= 0 {
		rest, q.Path = rest[:at], rest[at:]
	}
	q.TLS = scheme == "https" || scheme == "tls"
	if scheme != "" && scheme != "http" && !q.TLS {
		return q, fmt.Errorf("%s: write http:// or https://, or HOST:PORT", text)
	}
	host, port := rest, map[string]string{"http": "80", "https": "443"}[scheme]
	if at := strings.LastIndexByte(rest, ':'); at > strings.LastIndexByte(rest, ']') {
		host, port = rest[:at], rest[at+1:]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" {
		return q, errNoHost
	}
	q.Host, q.Port = strings.Trim(host, "[]"), uint32(n)
	return q, nil
}
