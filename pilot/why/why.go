package why

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Request is what somebody sends.
type Request struct {
	Authority string // as in the header Host
	Address   string // where the connection goes; empty where it is not known
	Port      uint32
	Method    string
	Path      string // with the query
	Headers   map[string]string
	TLS       bool   // the application itself speaks TLS
	SNI       string // of that TLS, or of the proxy's
	ALPN      []string

	// Of the connection that reaches the other side.
	SourceAddress string
	Identity      string // the SPIFFE identity of the certificate; empty where there is none

	said map[string]string // what filters of policies have said, for those behind them

	Gateway bool // the proxy is a gateway: it listens by itself
	Inbound bool // the connection reaches the proxy of the workload that it is meant for
}

// Config is what one proxy is sent, by type URL.
type Config map[string][]*envoy.Resource

// Step is one decision on the way.
type Step struct {
	What    string   `json:"what"` // listener, filter chain, virtual host, route, ...
	Name    string   `json:"name"`
	Reason  string   `json:"reason,omitempty"`
	Details []string `json:"details,omitempty"`
	Origin  Origin   `json:"-"`
	From    string   `json:"from,omitempty"` // what Origin is called, where somebody has said so
	Lost    []Lost   `json:"lost,omitempty"` // what was not taken, and why
}

// Lost is an alternative that was not taken.
type Lost struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Origin Origin `json:"-"`
	From   string `json:"from,omitempty"`
}

// Origin is what of an object a decision comes from.
type Origin struct {
	Path  string // as in metadata: /apis/networking.istio.io/v1/namespaces/a/virtual-service/web; empty: no object
	Place int    // of a route, how many routes of the same object come before it
	Count int    // and how many routes of that object there are
	Field string // spec.rules[0]
}

// Answer is what becomes of a request.
type Answer struct {
	Steps   []Step   `json:"steps"`
	Status  int      `json:"status"` // 200: it is passed on; 0: the connection is closed
	Reason  string   `json:"reason,omitempty"`
	Targets []Target `json:"targets,omitempty"`
	HTTP    bool     `json:"http"`            // the proxy reads requests, and not only connections
	Asked   bool     `json:"asked,omitempty"` // an authorizer is asked, who may deny it

	Forwarded Request `json:"-"` // what is passed on: with the path and the headers that routes have made of it
}

// Target is a cluster that gets a share of such requests.
type Target struct {
	Cluster   string     `json:"cluster"`
	Share     float64    `json:"share"` // percent
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	Origins   []string   `json:"-"` // of the cluster
	Subset    string     `json:"subset,omitempty"`
	Original  bool       `json:"original,omitempty"` // the connection goes where it was meant to go
}

// Endpoint is one place that a cluster sends to.
type Endpoint struct {
	Address  string   `json:"address"`
	Port     uint32   `json:"port"`
	Locality string   `json:"locality,omitempty"`
	Health   string   `json:"health,omitempty"` // empty: healthy
	Priority uint32   `json:"priority,omitempty"`
	TLS      string   `json:"tls,omitempty"` // empty: plaintext
	SNI      string   `json:"-"`
	ALPN     []string `json:"-"`
}

func (a *Answer) step(s Step) { a.Steps = append(a.Steps, s) }

func (a *Answer) end(status int, format string, args ...any) {
	a.Status, a.Reason = status, fmt.Sprintf(format, args...)
}

// Follow says what a proxy does with a request.
func Follow(c Config, r Request) (*Answer, error) {
	if r.Method == "" {
		r.Method = "GET"
	}
	if r.Path == "" {
		r.Path = "/"
	}
	a := &Answer{Status: 200, Forwarded: r}
	listeners, err := envoy.Decode[listenerv3.Listener](c[envoy.ListenerType])
	if err != nil {
		return nil, err
	}
	l, reason := listenerFor(listeners, r)
	if l == nil {
		a.end(0, "%s", reason)
		return a, nil
	}
	a.step(Step{What: "listener", Name: l.GetName(), Reason: reason})
	chain, lost, reason := chainFor(l, r)
	if chain == nil {
		a.step(Step{What: "filter chain", Name: "none", Reason: reason, Lost: lost})
		a.end(0, "no filter chain of listener %s matches the connection", l.GetName())
		return a, nil
	}
	a.step(Step{What: "filter chain", Name: cmp.Or(chain.GetName(), "(without a name)"), Reason: reason, Lost: lost, Origin: Origin{Path: configOf(chain.GetMetadata())}, Details: transport(chain, r)})
	return a, filters(a, c, chain, r)
}

// named decodes the resource of that name, nil if there is none.
func named[T any, M interface {
	*T
	proto.Message
}](list []*envoy.Resource, name string) (M, error) {
	for _, r := range list {
		if r.Name == name {
			all, err := envoy.Decode[T, M]([]*envoy.Resource{r})
			if err != nil {
				return nil, err
			}
			return all[0], nil
		}
	}
	return nil, nil
}

func configOf(m *corev3.Metadata) string {
	return m.GetFilterMetadata()["istio"].GetFields()["config"].GetStringValue()
}

// listenerFor returns the listener that takes a connection, and why.
func listenerFor(all []*listenerv3.Listener, r Request) (*listenerv3.Listener, string) {
	byName := func(name string) *listenerv3.Listener {
		i := slices.IndexFunc(all, func(l *listenerv3.Listener) bool { return l.GetName() == name })
		if i < 0 {
			return nil
		}
		return all[i]
	}
	if r.Inbound {
		if l := byName("virtualInbound"); l != nil && !r.Gateway {
			return l, "all connections to the workload come here"
		}
	}
	var any *listenerv3.Listener
	for _, l := range all {
		if l.GetName() == "virtualInbound" || l.GetName() == "virtualOutbound" {
			continue
		}
		for _, at := range append([]*corev3.Address{l.GetAddress()}, additional(l)...) {
			s := at.GetSocketAddress()
			if s.GetPortValue() != r.Port {
				continue
			}
			if r.Address != "" && s.GetAddress() == r.Address {
				return l, "it is for the address " + net.JoinHostPort(r.Address, strconv.Itoa(int(r.Port)))
			}
			if s.GetAddress() == "0.0.0.0" || s.GetAddress() == "::" {
				any = l
			}
		}
	}
	if any != nil {
		return any, fmt.Sprintf("it is for port %d at every address, and none is for %s alone", r.Port, cmp.Or(r.Address, "this address"))
	}
	if r.Gateway {
		for _, l := range all {
			for _, chain := range l.GetFilterChains() {
				if h := manager(chain); strings.HasPrefix(h.GetRds().GetRouteConfigName(), fmt.Sprintf("http.%d", r.Port)) || strings.HasPrefix(h.GetRds().GetRouteConfigName(), fmt.Sprintf("https.%d.", r.Port)) {
					return l, fmt.Sprintf("it takes the connections of the Gateway's port %d", r.Port)
				}
			}
		}
		return nil, fmt.Sprintf("no listener takes connections to port %d", r.Port)
	}
	if l := byName("virtualOutbound"); l != nil {
		return l, fmt.Sprintf("no listener is for %s, so that the one for all other connections takes it", net.JoinHostPort(cmp.Or(r.Address, "*"), strconv.Itoa(int(r.Port))))
	}
	return nil, fmt.Sprintf("no listener takes connections to port %d, and the proxy does not intercept", r.Port)
}

func additional(l *listenerv3.Listener) (list []*corev3.Address) {
	for _, a := range l.GetAdditionalAddresses() {
		list = append(list, a.GetAddress())
	}
	return list
}

// manager returns the connection manager of a chain, or an empty one.
func manager(chain *listenerv3.FilterChain) *hcmv3.HttpConnectionManager {
	h := &hcmv3.HttpConnectionManager{}
	for _, f := range chain.GetFilters() {
		if f.GetTypedConfig().MessageIs(h) && f.GetTypedConfig().UnmarshalTo(h) == nil {
			return h
		}
	}
	return h
}

// filters goes through the filters of a chain.
func filters(a *Answer, c Config, chain *listenerv3.FilterChain, r Request) error {
	for _, f := range chain.GetFilters() {
		m, err := unpack(f.GetTypedConfig())
		if err != nil {
			continue // a filter whose type is not known here decides nothing that is known here
		}
		switch m := m.(type) {
		case *hcmv3.HttpConnectionManager:
			return http(a, c, m, r)
		case *tcpv3.TcpProxy:
			return tcp(a, c, m)
		default:
			if rules := askedOf(m); rules != nil {
				ask(a, rules, r)
			}
			if rules := rulesOf(m); rules != nil && !authorize(a, rules, r, false) {
				return nil
			}
		}
	}
	a.end(0, "no filter of the chain passes the connection on")
	return nil
}

func unpack(any *anypb.Any) (proto.Message, error) {
	if any == nil {
		return nil, fmt.Errorf("there is no configuration")
	}
	return any.UnmarshalNew()
}

// http goes through the filters of a connection manager and routes the request.
func http(a *Answer, c Config, h *hcmv3.HttpConnectionManager, r Request) error {
	a.HTTP = true
	path, refusal := normalized(h, r.Path)
	if refusal != "" {
		a.end(400, "%s", refusal)
		return nil
	}
	if path != r.Path {
		a.step(Step{What: "path", Name: path, Reason: "that is what " + r.Path + " is normalized to"})
		r.Path, a.Forwarded.Path = path, path
	}
	for _, f := range h.GetHttpFilters() {
		m, err := unpack(f.GetTypedConfig())
		if err != nil {
			continue
		}
		if rules := askedOf(m); rules != nil {
			ask(a, rules, r)
		}
		if rules := rulesOf(m); rules != nil && !authorize(a, rules, r, true) {
			return nil
		}
		shadow(m, &r)
	}
	routes := h.GetRouteConfig()
	if name := h.GetRds().GetRouteConfigName(); name != "" {
		var err error
		if routes, err = named[routev3.RouteConfiguration](c[envoy.RouteType], name); err != nil {
			return err
		}
		if routes == nil {
			a.end(404, "route configuration %s is not there", name)
			return nil
		}
	}
	a.step(Step{What: "route configuration", Name: cmp.Or(routes.GetName(), "(in the listener)")})
	host, reason := hostFor(routes, r.Authority)
	if host == nil {
		a.end(404, "no virtual host of route configuration %s is for %s", routes.GetName(), r.Authority)
		return nil
	}
	a.step(Step{What: "virtual host", Name: host.GetName(), Reason: reason})
	route, step := routeFor(host, r)
	a.step(step)
	if route == nil {
		a.end(404, "no route of virtual host %s matches", host.GetName())
		return nil
	}
	switch action := route.GetAction().(type) {
	case *routev3.Route_Redirect:
		a.end(redirectStatus(action.Redirect), "the route redirects")
	case *routev3.Route_DirectResponse:
		a.end(int(action.DirectResponse.GetStatus()), "the route answers by itself")
	case *routev3.Route_Route:
		if status := aborts(route); status != 0 {
			a.end(status, "the route has a fault that answers every request")
			return nil
		}
		a.Forwarded = forwarded(r, routes, host, route)
		return pass(a, c, action.Route)
	default:
		a.end(500, "the route has an action that is not known here")
	}
	return nil
}

func redirectStatus(r *routev3.RedirectAction) int {
	switch r.GetResponseCode() {
	case routev3.RedirectAction_FOUND:
		return 302
	case routev3.RedirectAction_SEE_OTHER:
		return 303
	case routev3.RedirectAction_TEMPORARY_REDIRECT:
		return 307
	case routev3.RedirectAction_PERMANENT_REDIRECT:
		return 308
	}
	return 301
}

// pass says where a route leads.
func pass(a *Answer, c Config, r *routev3.RouteAction) error {
	missing := 503
	if r.GetClusterNotFoundResponseCode() == routev3.RouteAction_NOT_FOUND {
		missing = 404
	} else if r.GetClusterNotFoundResponseCode() == routev3.RouteAction_INTERNAL_SERVER_ERROR {
		missing = 500
	}
	weights := map[string]uint32{}
	var order []string
	add := func(name string, weight uint32) {
		if _, ok := weights[name]; !ok {
			order = append(order, name)
		}
		weights[name] += weight
	}
	switch {
	case r.GetCluster() != "":
		add(r.GetCluster(), 1)
	case r.GetWeightedClusters() != nil:
		for _, w := range r.GetWeightedClusters().GetClusters() {
			add(w.GetName(), w.GetWeight().GetValue())
		}
	default:
		a.end(200, "the header %s of the request names the cluster", r.GetClusterHeader())
		return nil
	}
	return targets(a, c, order, weights, missing)
}

// tcp says where a connection is passed on to.
func tcp(a *Answer, c Config, t *tcpv3.TcpProxy) error {
	weights, order := map[string]uint32{}, []string{}
	if t.GetCluster() != "" {
		weights[t.GetCluster()], order = 1, append(order, t.GetCluster())
	}
	for _, w := range t.GetWeightedClusters().GetClusters() {
		if weights[w.GetName()] == 0 {
			order = append(order, w.GetName())
		}
		weights[w.GetName()] += w.GetWeight()
	}
	return targets(a, c, order, weights, 0)
}

func targets(a *Answer, c Config, order []string, weights map[string]uint32, missing int) error {
	total := uint32(0)
	for _, w := range weights {
		total += w
	}
	served := false
	for _, name := range order {
		if weights[name] == 0 {
			continue
		}
		cluster, err := named[clusterv3.Cluster](c[envoy.ClusterType], name)
		if err != nil {
			return err
		}
		t := Target{Cluster: name, Share: 100 * float64(weights[name]) / float64(max(total, 1))}
		if cluster == nil {
			a.step(Step{What: "cluster", Name: name, Reason: "it is not there: nobody defines the service, or the proxy may not see it", Details: []string{share(t)}})
			a.Targets = append(a.Targets, t)
			a.Status, a.Reason = missing, "cluster "+name+" is not there"
			continue
		}
		s, err := t.fill(c, cluster)
		if err != nil {
			return err
		}
		s.Details = append([]string{share(t)}, s.Details...)
		a.step(s)
		a.Targets = append(a.Targets, t)
		served = served || t.serves()
		if !t.serves() && a.Reason == "" {
			a.Status, a.Reason = 503, "cluster "+name+" has no endpoint that takes requests"
			if missing == 0 {
				a.Status = 0
			}
		}
	}
	if served { // some of the requests are passed on
		a.Status = 200
		if len(order) == 1 {
			a.Reason = ""
		}
	}
	return nil
}

func share(t Target) string {
	return strconv.FormatFloat(t.Share, 'f', -1, 64) + " % of such requests"
}

// serves reports whether an endpoint takes requests.
func (t *Target) serves() bool {
	return t.Original || slices.ContainsFunc(t.Endpoints, func(e Endpoint) bool { return e.Health == "" || e.Health == "draining" || e.Health == "degraded" })
}

// fill says what is known of a cluster.
func (t *Target) fill(c Config, cluster *clusterv3.Cluster) (Step, error) {
	s := Step{What: "cluster", Name: cluster.GetName(), Origin: Origin{Path: configOf(cluster.GetMetadata())}}
	if part := strings.Split(cluster.GetName(), "|"); len(part) == 4 && part[2] != "" {
		t.Subset = part[2]
		s.Details = append(s.Details, "subset "+part[2])
	}
	assignment := cluster.GetLoadAssignment()
	switch cluster.GetType() {
	case clusterv3.Cluster_ORIGINAL_DST:
		t.Original = true
		s.Details = append(s.Details, "it passes connections on to where they were meant to go")
	case clusterv3.Cluster_EDS:
		var err error
		if assignment, err = named[endpointv3.ClusterLoadAssignment](c[envoy.EndpointType], cmp.Or(cluster.GetEdsClusterConfig().GetServiceName(), cluster.GetName())); err != nil {
			return s, err
		}
	}
	for _, group := range assignment.GetEndpoints() {
		l := group.GetLocality()
		locality := strings.TrimRight(l.GetRegion()+"/"+l.GetZone()+"/"+l.GetSubZone(), "/")
		for _, e := range group.GetLbEndpoints() {
			at := e.GetEndpoint().GetAddress().GetSocketAddress()
			x := Endpoint{Address: at.GetAddress(), Port: at.GetPortValue(), Locality: locality, Priority: group.GetPriority()}
			if pipe := e.GetEndpoint().GetAddress().GetPipe().GetPath(); pipe != "" {
				x.Address = pipe
			}
			if h := e.GetHealthStatus(); h != corev3.HealthStatus_UNKNOWN && h != corev3.HealthStatus_HEALTHY {
				x.Health = strings.ToLower(h.String())
			}
			x.TLS, x.SNI, x.ALPN = tlsOf(cluster, e)
			t.Endpoints = append(t.Endpoints, x)
		}
	}
	if len(t.Endpoints) == 0 && !t.Original {
		s.Details = append(s.Details, "it has no endpoints")
	}
	for _, e := range t.Endpoints {
		s.Details = append(s.Details, e.String())
	}
	return s, nil
}

// String says what an endpoint is, on one line.
func (e Endpoint) String() string {
	text := e.Address
	if e.Port != 0 {
		text = net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port)))
	}
	text += ", " + cmp.Or(e.Health, "healthy")
	if e.Locality != "" {
		text += ", in " + e.Locality
	}
	if e.Priority > 0 {
		text += fmt.Sprintf(", priority %d", e.Priority)
	}
	return text + ", " + cmp.Or(e.TLS, "plaintext")
}
