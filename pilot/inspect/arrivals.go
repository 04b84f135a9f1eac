package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	securityv1beta1 "istio.io/api/security/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
	"github.com/istiod-lite/istiod-lite/registry"
)

// outcome is the final result of a request, with the fields of Way.
type outcome struct {
	status   int
	reason   string
	answered bool
	depends  []string
}

// outcomeOf returns the outcome of a request at one proxy.
func outcomeOf(a *trace.Answer) outcome {
	return outcome{a.Status, a.Reason, a.Answered, lists.Map(a.Depends, trace.Dependency.String)}
}

// take records the final result of a request.
func (w *Way) take(end outcome) {
	w.Status, w.Reason, w.Answered, w.Depends = end.status, end.reason, end.answered, end.depends
}

// reaches reports whether an application gets the request.
func (o outcome) reaches() bool { return o.status == 200 && !o.answered }

// String says what happens to a request.
func (o outcome) String() string {
	if o.status == 0 {
		return "the connection is closed: " + o.reason
	}
	if o.reaches() {
		return "the request reaches the application"
	}
	return fmt.Sprintf("the request is answered with status %d: %s", o.status, o.reason)
}

// onwards follows a request that a proxy passes on, to every endpoint that may get it, and returns the final result. A
// proxy of HTTP answers with an error if the connection behind it is closed.
func (h *hops) onwards(from *trace.Answer, address string, by passer, depth int) (list []Arrival, end outcome, err error) {
	end = outcomeOf(from)
	if !end.reaches() {
		return nil, end, nil
	}
	if depth == maxHops {
		end.depends = append(end.depends, fmt.Sprintf("the request is not followed through more than %d gateways", maxHops))
		return nil, end, nil
	}
	var lost []string
	failed, answered := outcome{}, true
	for _, t := range from.Targets {
		for _, g := range h.groups(t, from.Forwarded, address) {
			a, got, err := h.arrive(t, g, from.Forwarded, by, depth)
			if err != nil {
				return nil, end, err
			}
			list = append(list, *a)
			for _, d := range got.depends {
				if !slices.Contains(end.depends, d) {
					end.depends = append(end.depends, d)
				}
			}
			if got.reaches() {
				continue
			}
			name := cmp.Or(a.Pod, a.Endpoint)
			lost = append(lost, fmt.Sprintf("Envoy may choose %s, where %s", name, got))
			failed, answered = got, answered && got.answered
			failed.reason = name + ": " + got.reason
		}
	}
	switch {
	case len(lost) == 0:
		return list, end, nil
	case len(lost) < len(list):
		end.depends = append(end.depends, lost...)
		return list, end, nil
	}
	failed.answered, failed.depends = answered, end.depends
	if failed.status == 0 && by.proxied && from.HTTP {
		failed.status = 503
	}
	return list, failed, nil
}

// group is an endpoint of a cluster, and the other endpoints that must give the same answer.
type group struct {
	trace.Endpoint
	pod    string // NAME.NAMESPACE; empty if the configuration has no such Pod
	to     *sender
	known  *registry.Endpoint // nil if the service has no such endpoint
	bypass string             // what lets connections bypass the Pod's proxy, or empty
	closed string             // why no connection to the endpoint succeeds, or empty
	others []string
}

// groups returns the endpoints of a target that may get a request, grouped by what their answers depend on.
func (h *hops) groups(t trace.Target, r trace.Request, address string) (list []*group) {
	all := t.Used()
	if t.Original && len(t.Endpoints) == 0 {
		all = []trace.Endpoint{t.At(address, r.Port)}
	}
	type likeness struct {
		port              uint32
		tls, sni, alpn    string
		lacks             bool
		cohort            cohort.Key
		identity, cluster string
		pod               string // set if the other endpoints may answer differently
	}
	byLikeness := map[likeness]*group{}
	all, closed := h.behind(all)
	for _, e := range all {
		g := &group{Endpoint: e, known: h.endpoint(t.Cluster, e), closed: closed[e.Address]}
		k := likeness{port: e.Port, tls: e.TLS, sni: e.SNI, alpn: strings.Join(e.ALPN, ","), lacks: len(e.Lacks) > 0}
		cluster := ""
		if g.known != nil {
			cluster = h.Snapshot.ClusterKey(g.known.Cluster)
		}
		k.cluster = cluster
		switch w := h.Snapshot.WorkloadByAddress(cluster, e.Address); {
		case w == nil:
			k.pod = e.Address
		default:
			g.pod = w.Name + "." + w.Namespace
			if cluster != "" { // only names of the own cluster identify proxies
				k.pod = g.pod
				break
			}
			if g.to = h.sender(g.pod); g.to != nil {
				g.bypass = bypasses(g.to, e.Port)
			}
			if g.to == nil || !g.to.proxied || g.bypass != "" {
				g.to = nil
				break
			}
			k.cohort, k.identity = h.translator.ResolveCohort(h.Snapshot, g.to.Proxy).Cached(), g.to.identity
			if h.server != nil && h.query.Sent || g.to.Type == node.Router {
				k.pod = g.pod
			}
		}
		if same := byLikeness[k]; same != nil {
			same.others = append(same.others, cmp.Or(g.pod, e.String()))
			continue
		}
		byLikeness[k] = g
		list = append(list, g)
	}
	return list
}

// behind returns the endpoints to which connections to some endpoints lead: the nodes of the cluster lead those to the
// address or the name of a Service to its ready endpoints. If there is none, it leaves the endpoint, and says why it is
// closed, by its address.
func (h *hops) behind(all []trace.Endpoint) (list []trace.Endpoint, closed map[string]string) {
	add := func(e trace.Endpoint, address string, port uint32) {
		e.Address, e.Port = address, port
		if !slices.ContainsFunc(list, func(x trace.Endpoint) bool { return x.Address == address && x.Port == port }) {
			list = append(list, e)
		}
	}
	for _, e := range all {
		s := h.serviceAt(e.Address)
		switch pod := h.podAddress(e.Address); {
		case e.Address == "":
		case pod != "":
			add(e, pod, e.Port)
		case s == nil || s.Resolution == registry.Alias:
			list = append(list, e)
		case s.Headless: // its name has the addresses of all Pods
			for _, address := range h.headless(s, h.o.ClusterID) {
				add(e, address, e.Port)
			}
		default:
			ready := h.ready(s, e.Port)
			if reason := noAnswer(s, e.Address, e.Port, ready); reason != "" {
				lists.Put(&closed, e.Address, reason)
				list = append(list, e)
			}
			for _, x := range ready {
				add(e, x.Address, x.Port)
			}
		}
	}
	return list, closed
}

// serviceAt returns the Service of the own cluster with that address or name, or nil.
func (i *Inspection) serviceAt(address string) *registry.Service {
	if _, err := netip.ParseAddr(address); err != nil {
		for s := range i.Snapshot.ServicesByHost(strings.TrimSuffix(strings.ToLower(address), ".")) {
			if s.Provider == registry.Kubernetes {
				return cmp.Or(s.ClusterVersion(""), s)
			}
		}
		return nil
	}
	if i.clusterIPs == nil {
		i.clusterIPs = map[string]*registry.Service{}
		for s := range i.Snapshot.EachService {
			if s = cmp.Or(s.ClusterVersion(""), s); s.Provider == registry.Kubernetes {
				for _, a := range s.Addresses {
					i.clusterIPs[a] = s
				}
			}
		}
	}
	return i.clusterIPs[address]
}

// endpoint returns the endpoint of a cluster's service, or nil if the service has none such: the address may be the
// address of a network's gateway.
func (h *hops) endpoint(cluster string, e trace.Endpoint) *registry.Endpoint {
	name, ok := names.ParseCluster(cluster)
	if !ok {
		return nil
	}
	for s := range h.Snapshot.ServicesByHost(name.Host) {
		for _, x := range h.Snapshot.Endpoints(s.Key()).List {
			if x.Address == e.Address && x.Port == e.Port {
				return x
			}
		}
	}
	return nil
}

// arrive follows a request to an endpoint of a cluster, and on from there if it is a gateway.
func (h *hops) arrive(t trace.Target, g *group, r trace.Request, by passer, depth int) (*Arrival, outcome, error) {
	e := g.Endpoint
	a := &Arrival{Cluster: t.Cluster, Endpoint: e.String(), Pod: g.pod, Others: g.others, tls: e.TLS != ""}
	end := outcome{status: 200}
	if len(e.Lacks) > 0 {
		a.Failure = "the proxy lacks the secrets that TLS needs: " + strings.Join(e.Lacks, ", ")
		return a, outcome{reason: a.Failure}, nil
	}
	if g.to != nil && e.TLS == trace.MeshTLS && len(e.Names) > 0 && !slices.ContainsFunc(e.Names, func(n trace.Name) bool {
		return n.Matches(g.to.identity)
	}) {
		wanted := strings.Join(lists.Map(e.Names, trace.Name.String), " or ")
		a.Failure = fmt.Sprintf("the TLS handshake fails: %s wants a certificate with %s, and %s has %s", cmp.Or(t.TLSBy, "cluster "+t.Cluster),
			wanted, g.pod, g.to.identity)
		return a, outcome{reason: a.Failure}, nil
	}
	if g.closed != "" {
		a.Failure = g.closed
		return a, outcome{reason: a.Failure}, nil
	}
	if g.to == nil {
		return a, h.unproxied(a, t, g, r), nil
	}
	p := g.to
	sent, err := h.sentTo(p.Proxy, names.ProxylessPort(e.Port))
	if err != nil {
		return nil, end, err
	}
	gateway, ofMesh := p.Type == node.Router, e.TLS == trace.MeshTLS
	in := r
	in.Proxyless = p.Generator == node.GRPC
	in.Inbound, in.Gateway, in.Identity, in.Certificate, in.HTTP3 = true, gateway, "", r.TLS && r.Certificate, false
	in.Address, in.Port, in.SourceAddress = e.Address, e.Port, by.address
	in.PROXY, in.Taken = e.PROXY, false
	if e.TLS != "" {
		in.TLS, in.SNI, in.ALPN, in.Certificate = true, e.SNI, e.ALPN, e.TLS != trace.TLS && (!ofMesh || by.identity == "")
	}
	if ofMesh {
		a.Identity, in.Identity, a.Unknown = by.identity, by.identity, by.identity == ""
	}
	in.Objects = objects{h.Inspection, p.Proxy}
	if !gateway { // the servers of a gateway have TLS settings of their own
		a.MTLS, a.policies = h.peerPolicy(p.Proxy, e.Port)
		a.Origins = lists.Map(a.policies, func(k kinds.Key) string { return h.Where(k, "") })
	}
	if a.Answer, err = trace.Follow(sent, in); err != nil {
		return nil, end, err
	}
	h.explain(a.Answer, p.Proxy)
	if a.MTLS == securityv1beta1.PeerAuthentication_MutualTLS_STRICT.String() && !in.TLS && a.Answer.Cause == accesslog.NoChain {
		a.Answer.Reason = "it accepts only mutual TLS, and the connection is plaintext"
	}
	if a.Answer.Cause == accesslog.NoChain && gateway && e.TLS != "" {
		a.Answer.Reason += fmt.Sprintf(": the server name of its TLS is %q, which sni in the tls of %s sets", e.SNI, h.tlsBy(t, e))
	}
	h.named(a.Answer, sent)
	end = outcomeOf(a.Answer)
	end.depends = lists.Map(end.depends, func(text string) string { return a.Pod + ": " + text })
	f := &a.Answer.Forwarded
	if ofMesh && f.TLS && end.reaches() && !gateway {
		a.Failure = fmt.Sprintf("the TLS handshake fails: %s says %s, and the proxy of %s passes TLS on to the application", h.tlsBy(t, e),
			e.TLS, a.Pod)
		return a, outcome{reason: a.Failure}, nil
	}
	if e.TLS != "" && r.TLS && !f.TLS && !e.PROXY { // the application's own TLS is within the proxy's
		f.TLS, f.SNI, f.ALPN = true, r.SNI, r.ALPN
		if a.Answer.HTTP && end.reaches() {
			a.Answer.Status, a.Answer.Reason = 0, "the proxy reads HTTP within the TLS of "+h.tlsBy(t, e)+", and the application speaks TLS there"
			end = outcome{reason: a.Answer.Reason}
		}
	}
	switch {
	case !end.reaches():
	case gateway:
		depends := end.depends
		a.Next, end, err = h.onwards(a.Answer, "", passer{e.Address, p.identity, true}, depth+1)
		end.depends = slices.Concat(depends, end.depends)
	default:
		if unfit := h.unfit(t, g, r, f.TLS || in.TLS && !ofMesh, a.Answer); unfit != "" {
			end.depends = append(end.depends, unfit)
		}
	}
	return a, end, err
}

// tlsBy names the TLS with which a proxy calls an endpoint, and what says so.
func (h *hops) tlsBy(t trace.Target, e trace.Endpoint) string {
	return cmp.Or(t.TLSBy, e.TLS, "the application")
}

// unproxied judges the connection to an endpoint without a proxy: it must be what the application there takes.
func (h *hops) unproxied(a *Arrival, t trace.Target, g *group, r trace.Request) outcome {
	e := g.Endpoint
	where := cmp.Or(g.pod, e.Address)
	if text := h.elsewhere(g, where); text != "" {
		return outcome{status: 200, depends: []string{text}}
	}
	if e.TLS == trace.MeshTLS && (t.TLSBy != "" || g.pod != "" || g.known == nil) {
		cause := where + " has no proxy that takes it"
		if g.bypass != "" {
			cause = fmt.Sprintf("%s of %s leads port %d past its proxy", g.bypass, where, e.Port)
		}
		by := cmp.Or(t.TLSBy, "the label "+names.LabelTLSMode+" of "+where)
		a.Failure = fmt.Sprintf("the TLS handshake fails: %s says %s, and %s", by, e.TLS, cause)
		return outcome{reason: a.Failure}
	}
	end := outcome{status: 200}
	add := func(format string, args ...any) { end.depends = append(end.depends, fmt.Sprintf(format, args...)) }
	if _, err := netip.ParseAddr(e.Address); err != nil {
		add("the proxy asks DNS for %s: without an address the request is answered with status 503", e.Address)
	}
	if e.TLS != trace.MeshTLS && len(e.Names) > 0 {
		add("the TLS handshake with %s fails unless its certificate has %s", where, strings.Join(lists.Map(e.Names, trace.Name.String), " or "))
	}
	if len(e.Files) > 0 {
		add("TLS to %s needs the files %s in the container of the proxy", where, strings.Join(e.Files, " and "))
	}
	switch unfit := h.unfit(t, g, r, r.TLS || e.TLS != "", nil); {
	case e.TLS == trace.MeshTLS:
		add("what the proxy at %s answers is not known here: the service account of the endpoint, or its label %s, says that there is one", where,
			names.LabelTLSMode)
	case unfit != "":
		end.depends = append(end.depends, unfit)
	}
	if e.PROXY {
		add("%s must read the header of the PROXY protocol with which the connection begins", where)
	}
	return end
}

// elsewhere says that an endpoint is beyond what this configuration has: in another network or cluster. It is empty if
// the endpoint is not.
func (h *hops) elsewhere(g *group, where string) string {
	for _, n := range h.Snapshot.Networks.Gateways() {
		if g.known == nil && n.Address == g.Address && n.Port == g.Port {
			return fmt.Sprintf("the gateway %s of network %s passes it on, and what answers there is not known here", g.Address, n.Network)
		}
	}
	if g.known != nil && h.Snapshot.ClusterKey(g.known.Cluster) != "" && g.known.TLSMode != "" {
		return fmt.Sprintf("what the proxy of %s answers is not known here: it is in cluster %s", where, g.known.Cluster)
	}
	return ""
}

// unfit says that an application may not take what it gets, because its port is declared for something else, or "" if
// it fits. tls reports whether the application gets TLS, which a proxy or the client has begun. The answer is of the
// proxy beside it, or nil. It is never certain, as applications may take what their Services do not declare.
func (h *hops) unfit(t trace.Target, g *group, r trace.Request, tls bool, at *trace.Answer) string {
	http := at != nil && at.HTTP
	beside := http && slices.ContainsFunc(at.Targets, func(t trace.Target) bool { return t.HTTP1 })
	where, by := cmp.Or(g.pod, g.Address), h.tlsBy(t, g.Endpoint)
	isGRPC := strings.HasPrefix(r.Headers["content-type"], "application/grpc") && !r.Proxyless // which speaks HTTP/2 itself
	byHTTP1 := where + " may not take gRPC by HTTP/1.1"
	originated := tls && g.TLS != "" && g.TLS != trace.MeshTLS
	if originated && r.TLS {
		return fmt.Sprintf("%s may not take TLS within TLS: the application speaks TLS itself, and %s adds %s", where, by, g.TLS)
	}
	name, ok := names.ParseCluster(t.Cluster)
	if !ok {
		return ""
	}
	for s := range h.Snapshot.ServicesByHost(name.Host) {
		p := s.Port(name.Port)
		if p == nil || s.Provider != registry.Kubernetes && p.Number != g.Port {
			continue
		}
		declared := fmt.Sprintf("port %d of %s is declared as %s", p.Number, s.Host, p.Protocol)
		isHTTP := h.query.HTTP || h.query.Method != ""
		switch {
		case originated && p.Protocol.IsHTTP():
			return fmt.Sprintf("%s may not take TLS at port %d: %s says %s, and %s, which is plaintext", where, g.Port, by, g.TLS, declared)
		case !tls && p.Protocol.IsTLS():
			return fmt.Sprintf("%s may not take plaintext at port %d: %s, and no DestinationRule in force has TLS settings for it", where, g.Port,
				declared)
		case http && !tls && !isHTTP && !p.Protocol.IsHTTP() && !p.Protocol.Sniffed():
			return fmt.Sprintf("%s reads HTTP at port %d, and %s: it refuses connections of another protocol", where, g.Port, declared)
		case t.Original && s.Headless && h.targetPort(s, p) != g.Port:
			return fmt.Sprintf("%s may not listen at port %d: the addresses of a headless Service are called as they are, and its port %d has the "+
				"targetPort %d", where, g.Port, p.Number, h.targetPort(s, p))
		case t.HTTP2 && g.to == nil && p.Protocol == protocols.HTTP:
			return fmt.Sprintf("%s may not take HTTP/2, by which the proxy calls it: %s", where, declared)
		case isGRPC && t.HTTP1:
			return byHTTP1 + ": " + declared + "; declare it as grpc or http2"
		}
	}
	if isGRPC && beside {
		return byHTTP1 + ": the port that is first of those with its number in Services is not declared as grpc or http2"
	}
	return ""
}

// targetPort returns the port of the endpoints of a port of a service, or the port's own number if there are none.
func (h *hops) targetPort(s *registry.Service, p *registry.Port) uint32 {
	for _, e := range h.Snapshot.Endpoints(s.Key()).ByPort(p.Name) {
		return e.Port
	}
	return p.Number
}

// bypasses returns the annotation of a Pod, or the rule, by which connections to a port reach the application without
// the proxy, or "".
func bypasses(p *sender, port uint32) string {
	if p.Type != node.Sidecar || p.Generator == node.GRPC {
		return ""
	}
	if slices.Contains([]uint32{15020, 15021, 15090}, port) {
		return "the redirection to the proxy, which leaves out the proxy's own ports,"
	}
	if annotation := names.LeftToApplication(p.Annotations, port); annotation != "" {
		return "the annotation " + annotation
	}
	return ""
}
