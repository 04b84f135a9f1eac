package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Log is what a line of an access log says, and whether the configuration explains it.
type Log struct {
	*accesslog.Entry
	Meanings []accesslog.Meaning `json:"meanings,omitempty"`
	Of       string              `json:"of,omitempty"`   // workload whose proxy wrote the line, as NAME.NAMESPACE
	Side     Side                `json:"side,omitempty"` // what that proxy does with the request
	Source   string              `json:"source,omitempty"`
	Target   string              `json:"target,omitempty"` // HOST:PORT
	Missing  []string            `json:"missing,omitempty"`
	Notes    []string            `json:"notes,omitempty"`
	// Explained says that the configuration is the cause, as it is now.
	Explained bool   `json:"explained"`
	Verdict   string `json:"verdict,omitempty"`
	Failed    bool   `json:"failed"` // whether the line says that no application answered
	// Changes are what a server has pushed: if the configuration explains the line, the last changes before it of the
	// objects that decide the request, otherwise the changes after it that may concern the request.
	Changes []Change `json:"changes,omitempty"`

	gone        string // the Pod of the line, by its name or its address, if it is not there any longer
	outside     bool   // whether the source is an address outside the mesh, of which only a certificate may be known
	contradicts bool   // whether the configuration cannot be the one of the line
	guessed     bool   // whether it is a guess that a gateway passed the request on
}

// Side is where a proxy stands on the way of a request.
type Side string

// Values of Side.
const (
	sideOutbound Side = "outbound" // beside the caller
	sideInbound  Side = "inbound"  // beside the application that is called
	sideGateway  Side = "gateway"
)

// Meaning returns what response flags and responses of Envoy mean that are given without a source and a target. It
// returns nil if the text needs the configuration: it is a line of an access log, or unknown.
func Meaning(text string) *Way {
	e, err := accesslog.Parse(text, accesslog.Defaults())
	if err != nil || e.Kind == accesslog.Line {
		return nil
	}
	l := newLog(e)
	l.lacks("who called", "SOURCE, the NAME.NAMESPACE of the caller's Pod")
	l.lacks("what was called", "HOST:PORT")
	return &Way{Log: l, Status: e.Code}
}

func newLog(e *accesslog.Entry) *Log {
	return &Log{Entry: e, Meanings: e.Meanings(), Failed: e.Failed()}
}

func (l *Log) lacks(what, give string) {
	l.Missing = append(l.Missing, fmt.Sprintf("The text does not say %s: give %s.", what, give))
}

func (l *Log) note(format string, args ...any) {
	l.Notes = append(l.Notes, fmt.Sprintf(format, args...))
}

// whyLog explains a line of an access log: it follows the request that the line is of, and compares.
func (i *Inspection) whyLog(q Query) (*Way, error) {
	e, err := accesslog.Parse(q.Log, accesslog.FormatsOf(i.Snapshot.Mesh.MeshConfig))
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	l := newLog(e)
	q.Log, q.logged = "", true
	i.describe(l, &q)
	i.locate(l, &q)
	if len(l.Missing) > 0 {
		return &Way{Log: l, Status: e.Code, Method: q.Method}, nil
	}
	l.Source, l.Target = q.Source, q.Host
	why := i.Why
	if l.outside {
		why = func(q Query) (*Way, error) { return i.fromOutside(l, q) }
	}
	located := *l
	w, err := why(q)
	if err != nil {
		return nil, err
	}
	i.judge(l, w)
	if l.contradicts {
		for _, a := range i.assumptions(l, q) {
			other := located
			other.Notes = append(slices.Clone(located.Notes), a.note)
			other.Target = a.query.Host
			again, err := why(a.query)
			if err != nil {
				continue
			}
			if i.judge(&other, again); !other.contradicts {
				l, w = &other, again
				break
			}
		}
	}
	if l.contradicts && l.guessed { // it may have come from elsewhere
		l = newLog(e)
		l.Of, l.Side = located.Of, located.Side
		l.Missing = []string{fmt.Sprintf(unknownCaller, accesslog.HostPort(l.DownstreamRemote).Addr())}
		return &Way{Log: l, Status: e.Code, Method: q.Method}, nil
	}
	l.Target += ":" + strconv.Itoa(int(w.Port))
	w.Log = l
	return w, nil
}

// describe takes the request of a line into a query. The query keeps what the user has given.
func (i *Inspection) describe(l *Log, q *Query) {
	unread := l.IsConnection() || l.Kind == accesslog.Line && l.Method == "" && slices.Contains(l.Flags, "DPE")
	q.opaque = unread && l.Refused == "" && q.Method == "" && !l.ofMesh() // the port of the service says what is in mutual TLS of the mesh
	q.Method = cmp.Or(q.Method, l.Method)
	if from := (Query{Path: l.Path}); q.Path == "" && from.ValidPath() {
		q.Path = l.Path
	} else if q.Path == "" {
		l.note("the path of the line is no path, and / is taken: %.100s", l.Path)
	}
	headers := map[string]string{}
	for k, v := range l.Headers {
		headers[k] = v
	}
	if l.Authority != "" {
		headers["host"] = l.Authority
	}
	for k, v := range q.Headers {
		headers[strings.ToLower(k)] = v
	}
	q.Headers = headers
	if !l.Time.IsZero() {
		q.Now = l.Time
	}
	refused := strings.ToLower(strings.ReplaceAll(l.Refused, "_", " "))
	q.Certificate = q.Certificate || l.Peer != "" || refused != "" && !strings.Contains(refused, "did not return a certificate")
	for _, what := range l.Shortened {
		l.note("the format writes only the beginning of %s: the request may differ in the rest", what)
	}
}

// podAt returns the workload of the own cluster with an address, or "".
func (i *Inspection) podAt(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	if w := i.Snapshot.WorkloadByAddress("", a.String()); w != nil {
		return w.Name + "." + w.Namespace
	}
	return ""
}

// unknownCaller is what is missing if only the address in X-Forwarded-For is known of the caller.
const unknownCaller = "The request came for %s, by X-Forwarded-For, and the line does not say through which gateway or from which Pod: " +
	"give SOURCE, the NAME.NAMESPACE of its Pod, and HOST:PORT."

// locate finds the proxy that wrote a line, and the source and target of its request.
func (i *Inspection) locate(l *Log, q *Query) {
	local, peer := accesslog.HostPort(l.DownstreamLocal), accesslog.Host(cmp.Or(l.DirectRemote, l.DownstreamRemote))
	cluster, _ := names.ParseCluster(l.UpstreamCluster)
	at, caller := i.podAt(local.Addr()), i.podAt(peer)
	forwarded := accesslog.HostPort(l.DownstreamRemote)
	isForwarded := l.DirectRemote == "" && forwarded.IsValid() && forwarded.Port() == 0 // an address of X-Forwarded-For
	if isForwarded {
		caller = ""
	}
	if l.Pod != "" && l.Namespace != "" {
		l.Of = l.Pod + "." + l.Namespace
	} else if l.Pod != "" {
		if list := slices.DeleteFunc(i.Workloads(), func(name string) bool { return !strings.HasPrefix(name, l.Pod+".") }); len(list) == 1 {
			l.Of = list[0]
		}
	}
	if l.Pod != "" && i.sender(l.Of) == nil {
		l.gone, l.Of = l.Pod, i.standIn(l.Pod, l.Namespace)
		if l.Of != "" {
			l.note("the Pod %s, whose log the line is of, is not there any longer: %s of the same workload is taken", l.gone, l.Of)
		}
	}
	owner := cmp.Or(l.Of, q.Source)
	isOutbound := cluster.Direction == names.Outbound || slices.Contains([]string{"PassthroughCluster", "BlackHoleCluster"}, l.UpstreamCluster)
	switch {
	case i.isGateway(cmp.Or(at, owner)):
		l.Side, l.Of = sideGateway, cmp.Or(at, owner)
	case isOutbound || at == "" && cluster.Direction == "" && !strings.HasPrefix(l.ServerName, "outbound_"):
		l.Side, l.Of = sideOutbound, cmp.Or(l.Of, caller, q.Source)
	case cluster.Direction == names.Inbound || strings.HasPrefix(l.ServerName, "outbound_"):
		l.Side, l.Of = sideInbound, cmp.Or(l.Of, at, owner)
	case owner == caller && owner != "":
		l.Side, l.Of = sideOutbound, owner
	default:
		l.Side, l.Of = sideInbound, cmp.Or(l.Of, at, owner)
	}
	if l.Side == sideInbound && l.Of == "" && local.IsValid() {
		l.gone = cmp.Or(l.gone, local.Addr().String())
	}
	switch l.Side {
	case sideInbound:
		if !isForwarded {
			forwarded = netip.AddrPort{}
		}
		i.locateInbound(l, q, local, forwarded, caller, peer)
	case sideGateway:
		q.Source = l.Of
		l.locateClient(q, peer, isForwarded)
		if host, _ := splitAuthority(l.Authority); l.ServerName != "" && host != "" && host != l.ServerName {
			l.note("the TLS is for %s and the request for %s: HTTP/2 clients use a connection for other hosts of its certificate too, and the "+
				"gateway answers with the routes of %s", l.ServerName, host, l.ServerName)
		}
		i.locateTarget(l, q, local, cluster)
	case sideOutbound:
		if q.Source = cmp.Or(q.Source, l.Of); q.Source == "" && isForwarded {
			l.Missing = append(l.Missing, fmt.Sprintf("%s is an address of X-Forwarded-For, and the line does not say who called: give SOURCE, "+
				"the NAME.NAMESPACE of the caller's Pod.", forwarded.Addr()))
		} else if q.Source == "" && peer.IsValid() {
			l.Missing = append(l.Missing, fmt.Sprintf("%s called, and no Pod has this address now: give SOURCE, such as a newer Pod of the same "+
				"workload.", peer))
		} else if q.Source == "" {
			l.lacks("who called", "SOURCE, the NAME.NAMESPACE of the caller's Pod")
		}
		i.locateTarget(l, q, local, cluster)
	}
	if host := accesslog.HostPort(l.UpstreamHost); host.IsValid() && l.Side != sideInbound {
		switch pod := i.podAt(host.Addr()); {
		case pod != "":
			l.note("the proxy chose the endpoint %s, which is %s", host, pod)
		case cluster.Direction == names.Outbound && i.isInCluster(cluster.Host):
			l.note("the proxy chose the endpoint %s: no Pod has this address now, so that the Pod of the line is gone", host)
		}
	}
}

// locateInbound finds the caller and the service of a line that the proxy of the called workload has written. forwarded
// is the address of X-Forwarded-For that the line has instead of the caller's, if it has one.
func (i *Inspection) locateInbound(l *Log, q *Query, local, forwarded netip.AddrPort, caller string, peer netip.Addr) {
	q.TLS = q.TLS || l.ServerName != "" && l.Peer == "" && !l.ofMesh()
	switch {
	case i.isGateway(q.Source) && q.Host == "":
		if !i.throughGateway(l, q, []string{q.Source}) {
			i.behindGateway(l, q, q.Source, local, forwarded)
		}
		return
	case q.Source != "" && q.Source != l.Of:
	case forwarded.IsValid():
		gateways := i.gateways()
		if i.throughGateway(l, q, gateways) {
			return
		}
		if len(gateways) > 0 && !slices.ContainsFunc(gateways, func(name string) bool {
			return i.sender(name).identity != i.sender(gateways[0]).identity
		}) {
			i.behindGateway(l, q, gateways[0], local, forwarded)
			return
		}
		l.Missing = append(l.Missing, fmt.Sprintf(unknownCaller, forwarded.Addr()))
		return
	case i.isGateway(caller) && i.throughGateway(l, q, []string{caller}):
		return
	}
	i.locateCaller(l, q, caller, peer)
	i.locateService(l, q, local)
}

// behindGateway follows the request of a line from the gateway that passed it on, if it is not known which request came
// to the gateway: its routes may have changed the host and the path.
func (i *Inspection) behindGateway(l *Log, q *Query, gateway string, local, client netip.AddrPort) {
	from := i.sender(gateway)
	l.outside, l.guessed = true, true
	if l.ofMesh() {
		l.Peer = cmp.Or(l.Peer, from.identity)
	}
	q.Source, q.Host, q.Port = first(from.IPs), local.Addr().String(), uint32(local.Port())
	if _, there := q.Headers["x-forwarded-for"]; !there && client.IsValid() {
		q.Headers["x-forwarded-for"] = client.Addr().String()
	}
	l.note("the request came through gateway %s, and which request came there is not known: only what happens at %s is followed. Give SOURCE "+
		"and HOST:PORT if it came another way", gateway, cmp.Or(l.Of, local.String()))
}

// standIn returns another Pod of the workload that a Pod was of, by its name, or "". Names of such Pods differ in their
// last part, or in the last two.
func (i *Inspection) standIn(pod, namespace string) string {
	for differ := range 2 {
		at := strings.LastIndexByte(pod, '-')
		if at <= 0 {
			return ""
		}
		pod = pod[:at]
		for _, name := range i.Workloads() {
			own, ns, _ := cutLast(name, '.')
			rest, of := strings.CutPrefix(own, pod+"-")
			if of && strings.Count(rest, "-") == differ && (namespace == "" || ns == namespace) && i.sender(name) != nil {
				return name
			}
		}
	}
	return ""
}

// locateClient finds the address of the client that called a gateway. The gateway has added it to X-Forwarded-For.
func (l *Log) locateClient(q *Query, peer netip.Addr, isForwarded bool) {
	const header = "x-forwarded-for"
	given := q.Headers[header]
	before, last, _ := cutLast(given, ',')
	added := accesslog.Host(strings.TrimSpace(last))
	if added.IsValid() && given == l.Headers[header] && (added == peer || isForwarded) {
		peer, isForwarded = added, false
		if q.Headers[header] = before; before == "" {
			delete(q.Headers, header)
		}
	}
	if peer.IsValid() && !isForwarded {
		q.FromAddress = cmp.Or(q.FromAddress, peer.String())
	}
}

// cutLast splits a text at the last separator. Without one, all of it is behind.
func cutLast(text string, separator byte) (before, after string, found bool) {
	at := strings.LastIndexByte(text, separator)
	if at < 0 {
		return "", text, false
	}
	return text[:at], text[at+1:], true
}

func (i *Inspection) isGateway(name string) bool {
	s := i.sender(name)
	return s != nil && s.proxied && s.Type == node.Router
}

// fromOutside follows the request of a line at the workload whose proxy wrote it. Nothing is known about the caller but
// its address and its certificate.
func (i *Inspection) fromOutside(l *Log, q Query) (*Way, error) {
	r := q.request()
	r.Address, r.SourceAddress = q.Host, q.Source
	t := trace.Target{Cluster: q.Host, Share: 100, Original: true}
	if l.Peer != "" || l.ofMesh() {
		t.CallBy(trace.Endpoint{TLS: trace.MeshTLS, SNI: l.ServerName, ALPN: names.MeshALPN})
	} else {
		r.TLS, r.SNI = l.ServerName != "", l.ServerName
	}
	w := &Way{Port: q.Port, Method: q.method("GET"), Outbound: unchanged(r, t, "the caller is outside the mesh")}
	h := hops{Inspection: i, query: q}
	var end outcome
	var err error
	w.Arrivals, end, err = h.onwards(w.Outbound, q.Host, passer{q.Source, l.Peer, false}, 0)
	w.take(end)
	w.Notes = h.notes
	return w, err
}

// gateways returns the proxies of gateways, as NAME.NAMESPACE.
func (i *Inspection) gateways() []string {
	return slices.DeleteFunc(i.Workloads(), func(name string) bool { return !i.isGateway(name) })
}

// maxTries bounds the ports of gateways that are tried for one line.
const maxTries = 64

// throughGateway finds the gateway and its port that send the request of a line to the workload whose proxy wrote it.
// It reports false if there is none.
func (i *Inspection) throughGateway(l *Log, q *Query, gateways []string) bool {
	called, known := names.ParseCluster(l.ServerName)
	host, _ := splitAuthority(cmp.Or(l.Authority, called.Host))
	tries := 0
	for _, name := range gateways {
		p := i.sender(name).Proxy
		listeners, err := i.translator.Get(i.Snapshot, i.translator.ResolveCohort(i.Snapshot, p), envoy.ListenerType, nil)
		if err != nil {
			continue
		}
		for r := range listeners.All {
			port, err := strconv.ParseUint(r.Name[strings.LastIndexByte(r.Name, '_')+1:], 10, 16)
			if err != nil {
				continue
			}
			for _, tls := range []bool{false, true} {
				if tries++; tries > maxTries {
					return false
				}
				try := *q
				try.Source, try.Host, try.Port, try.TLS = name, host, uint32(port), tls
				w, err := i.Why(try)
				if err != nil {
					continue
				}
				a := arrivalAt(w.Arrivals, l.Of)
				if a == nil || known && a.Cluster != names.Cluster(names.Outbound, called.Port, called.Subset, called.Host) {
					continue
				}
				if a.Answer != nil && !l.Failed && !outcomeOf(a.Answer).reaches() { // the line shows an answer of the application
					continue
				}
				*q = try
				l.note("the request came through a gateway: %s sends such requests from its port %d to %s", name, port, l.Of)
				return true
			}
		}
	}
	return false
}

// isInCluster reports whether the endpoints of a host are Pods.
func (i *Inspection) isInCluster(host string) bool {
	for s := range i.Snapshot.ServicesByHost(host) {
		return s.Provider == registry.Kubernetes
	}
	return false
}

// ofMesh reports whether a sidecar of the mesh called: it names the service in its TLS.
func (l *Log) ofMesh() bool { return strings.HasPrefix(l.ServerName, "outbound_") }

// locateCaller finds who called the workload whose proxy wrote a line.
func (i *Inspection) locateCaller(l *Log, q *Query, caller string, peer netip.Addr) {
	if q.Source == l.Of && q.Source != "" { // the Pod whose log it is
		q.Source = ""
	}
	q.Source = cmp.Or(q.Source, caller)
	local := accesslog.HostPort(l.DownstreamLocal)
	switch {
	case q.Source != "":
	case peer.IsValid() && q.Host == "" && i.podAt(local.Addr()) == l.Of && l.Of != "":
		l.outside = true
		q.Source, q.Host, q.Port = peer.String(), local.Addr().String(), uint32(local.Port())
		l.note("no workload of the mesh has the address %s, which called %s: only what happens there is followed", peer, l.Of)
		if l.Peer == "" && l.ofMesh() {
			l.note("a proxy of the mesh called, and its Pod is not there any longer: its identity is not known. Give SOURCE, such as a newer " +
				"Pod of the same workload")
		}
	case peer.IsValid():
		l.Missing = append(l.Missing, fmt.Sprintf("%s called %s, and no Pod has this address now: give SOURCE, such as a newer Pod of the same "+
			"workload.", peer, cmp.Or(l.Of, "the workload")))
	default:
		l.lacks("who called", "SOURCE, the NAME.NAMESPACE of the caller's Pod")
	}
}

// locateService finds the service by which a workload was called. A sidecar names it in its TLS. Otherwise it is the
// service of the authority, or the only one that has the workload, or none: then the Pod itself is called.
func (i *Inspection) locateService(l *Log, q *Query, local netip.AddrPort) {
	if q.Host != "" {
		return
	}
	if called, ok := names.ParseCluster(l.ServerName); ok {
		q.Host, q.Port = called.Host, called.Port
		return
	}
	if !local.IsValid() {
		l.lacks("what was called", "HOST:PORT")
		return
	}
	type service struct {
		host string
		port uint32
	}
	var all []service
	for s := range i.Snapshot.EachService {
		for _, e := range i.Snapshot.Endpoints(s.Key()).List {
			for _, p := range s.Ports {
				if e.Address == local.Addr().String() && e.Port == uint32(local.Port()) && e.ServicePort == p.Name {
					all = append(all, service{s.Host, p.Number})
				}
			}
		}
	}
	host, _ := splitAuthority(cmp.Or(l.Authority, l.ServerName))
	var named *registry.Service
	if from := i.sender(q.Source); from != nil {
		named = i.serviceOf(host, from)
		if at := slices.IndexFunc(all, func(s service) bool { return named != nil && s.host == named.Host }); at >= 0 {
			all = all[at : at+1]
		}
	}
	if len(all) > 0 && (host == "" || len(all) == 1) && !slices.ContainsFunc(all, func(s service) bool { return s.host != all[0].host }) {
		q.Host, q.Port = all[0].host, all[0].port
		if len(all) > 1 {
			l.note("several ports of %s lead to port %d of its Pods, and %d is taken", q.Host, local.Port(), q.Port)
		}
		return
	}
	if named != nil && l.gone != "" { // its Pod has no address any longer
		for _, p := range named.Ports {
			if len(named.Ports) == 1 || p.TargetPort == strconv.Itoa(int(local.Port())) || p.Number == uint32(local.Port()) {
				q.Host, q.Port = named.Host, p.Number
				return
			}
		}
	}
	q.Host, q.Port = local.Addr().String(), uint32(local.Port())
}

// splitAuthority returns the host and the port of a header Host. The port is 0 if there is none.
func splitAuthority(authority string) (host string, port uint32) {
	host = authority
	if at := strings.LastIndexByte(authority, ':'); at > strings.LastIndexByte(authority, ']') {
		if n, err := strconv.ParseUint(authority[at+1:], 10, 16); err == nil {
			host, port = authority[:at], uint32(n)
		}
	}
	return strings.Trim(host, "[]"), port
}

// locateTarget finds what a proxy called for its application, or what the client of a gateway called.
func (i *Inspection) locateTarget(l *Log, q *Query, local netip.AddrPort, cluster names.ClusterName) {
	if q.Host != "" {
		return
	}
	host, port := splitAuthority(l.Authority)
	q.TLS = q.TLS || l.ServerName != ""
	q.Port = cmp.Or(uint32(local.Port()), port, cluster.Port)
	switch {
	case l.ServerName != "":
		q.Host, q.Port = l.ServerName, cmp.Or(q.Port, 443)
	case l.Side == sideGateway:
		q.Host = cmp.Or(host, cluster.Host)
	case local.IsValid():
		q.Host = i.hostAt(local.Addr().String(), host, cluster.Host)
	default:
		q.Host = cmp.Or(host, cluster.Host)
	}
	q.Port = cmp.Or(q.Port, 80)
	if q.Host == "" {
		l.lacks("what was called", "HOST:PORT")
	}
}

// hostAt returns the host of the service with an address that an application has called: one of the preferred hosts if
// several have it, or the address itself if none has.
func (i *Inspection) hostAt(address string, preferred ...string) string {
	found := ""
	for s := range i.Snapshot.EachService {
		if !slices.Contains(s.Addresses, address) && !slices.Contains(s.AutoAddress, address) {
			continue
		}
		if slices.Contains(preferred, s.Host) {
			return s.Host
		}
		found = s.Host
	}
	return cmp.Or(found, address)
}
