package trace

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Request is a request, or a connection, at one proxy.
type Request struct {
	Authority string // value of the header Host
	Host      string // host as the application names it
	Address   string // destination address of the connection; empty if it is not known
	Port      uint32
	Method    string
	Path      string // path with the query
	Headers   map[string]string
	TLS       bool   // whether the application itself speaks TLS
	SNI       string // server name of the application's TLS, or of the proxy's
	ALPN      []string
	HTTP3     bool // whether the request comes over QUIC, with TLS of its own

	// SourceAddress and Identity describe the connection at the receiving side.
	SourceAddress string
	Identity      string // SPIFFE identity of the certificate; empty if there is none

	Claims map[string]any // of a token wherever policies look for one, in addition to those in headers; nil if there is none
	Now    time.Time      // time at which tokens are checked for expiry; zero if none expires

	said    map[string]string // metadata that filters of policies have set for later filters
	payload map[string]any    // claims of the valid token; nil if there is none

	Gateway   bool // whether the proxy is a gateway, which listens by itself
	Inbound   bool // whether the connection reaches the proxy of its destination workload
	Proxyless bool // whether there is no proxy because the application uses xDS itself, as gRPC does
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
	From    string   `json:"from,omitempty"` // name of Origin; optional
	Lost    []Lost   `json:"lost,omitempty"` // alternatives that lost, with the reasons
}

// Lost is an alternative that does not apply.
type Lost struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Origin Origin `json:"-"`
	From   string `json:"from,omitempty"`
}

// Origin identifies the part of an object that a decision comes from.
type Origin struct {
	Path  string // as in metadata: /apis/networking.istio.io/v1/namespaces/a/virtual-service/web; empty if there is no object
	Place int    // for a route: the number of routes of the same object before it
	Count int    // number of routes of that object
	Field string // spec.rules[0]
}

// Answer is the result for a request at one proxy.
type Answer struct {
	Steps   []Step   `json:"steps"`
	Status  int      `json:"status"` // 200 if it is passed on, 0 if the connection is closed
	Reason  string   `json:"reason,omitempty"`
	Targets []Target `json:"targets,omitempty"`
	HTTP    bool     `json:"http"`            // whether the proxy reads requests, and not only connections
	Asked   bool     `json:"asked,omitempty"` // whether an external authorizer is asked, which may deny the request
	// Answered says that the proxy answers the request itself, so that no application does.
	Answered bool `json:"answered,omitempty"`

	Forwarded Request `json:"-"` // the request as it is passed on, with the path and the headers that routes have changed
}

func (a *Answer) step(s Step) { a.Steps = append(a.Steps, s) }

func (a *Answer) end(status int, format string, args ...any) {
	a.Status, a.Reason = status, fmt.Sprintf(format, args...)
}

// Follow returns what a proxy does with a request.
func Follow(c Config, r Request) (*Answer, error) {
	r.Method = cmp.Or(r.Method, "GET")
	r.Path = cmp.Or(r.Path, "/")
	r.said, r.payload = nil, nil // set by the previous proxy
	a := &Answer{Status: 200, Forwarded: r}
	listeners, err := envoy.Decode[listenerv3.Listener](c[envoy.ListenerType])
	if err != nil {
		return nil, err
	}
	l, reason := listenerFor(c, listeners, r)
	if l != nil && l.GetApiListener() != nil {
		a.step(Step{What: "listener", Name: l.GetName(), Reason: reason})
		h := &hcmv3.HttpConnectionManager{}
		if err := l.GetApiListener().GetApiListener().UnmarshalTo(h); err != nil {
			return nil, fmt.Errorf("read %s: %w", l.GetName(), err)
		}
		return a, http(a, c, h, r)
	}
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
	a.step(Step{What: "filter chain", Name: chainName(chain), Reason: reason, Lost: lost,
		Origin: Origin{Path: configOf(chain.GetMetadata())}, Details: transport(chain, r)})
	if !handshake(a, c, chain, r) {
		return a, nil
	}
	err = filters(a, c, chain, r)
	if downstreamTLS(chain) != nil { // TLS is terminated: what it contains is passed on
		f := &a.Forwarded
		f.TLS, f.HTTP3, f.SNI, f.ALPN = false, false, "", nil
	}
	return a, err
}

// named decodes the resource of that name. It returns nil if there is none.
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
func listenerFor(c Config, all []*listenerv3.Listener, r Request) (*listenerv3.Listener, string) {
	byName := func(name string) *listenerv3.Listener {
		i := slices.IndexFunc(all, func(l *listenerv3.Listener) bool { return l.GetName() == name })
		if i < 0 {
			return nil
		}
		return all[i]
	}
	if r.Proxyless {
		at := net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port)))
		if r.Inbound {
			at = names.ProxylessPort(r.Port)
		}
		if l := byName(at); l != nil {
			return l, "the application asks for it by this name"
		}
		return nil, "there is no listener of the name " + at + ", for which the application asks"
	}
	if r.Inbound {
		if l := byName("virtualInbound"); l != nil && !r.Gateway {
			return l, "all connections to the workload come here"
		}
	}
	all = slices.DeleteFunc(slices.Clone(all), func(l *listenerv3.Listener) bool { return (l.GetUdpListenerConfig() != nil) != r.HTTP3 })
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
	if r.HTTP3 && !r.Gateway {
		return nil, "the proxy takes no QUIC, as only gateways do"
	}
	if r.Gateway {
		for _, l := range all {
			for _, chain := range l.GetFilterChains() {
				if isOfPort(c, manager(chain).GetRds().GetRouteConfigName(), r.Port) {
					return l, fmt.Sprintf("it takes the connections of the Gateway's port %d", r.Port)
				}
			}
		}
		if r.HTTP3 {
			return nil, fmt.Sprintf("no listener takes QUIC to port %d: no server there takes HTTP/3, or the gateway's Service does not "+
				"have the port for UDP", r.Port)
		}
		return nil, fmt.Sprintf("no listener takes connections to port %d", r.Port)
	}
	if l := byName("virtualOutbound"); l != nil {
		return l, fmt.Sprintf("no listener is for %s, so that the one for all other connections takes it",
			net.JoinHostPort(cmp.Or(r.Address, "*"), strconv.Itoa(int(r.Port))))
	}
	return nil, fmt.Sprintf("no listener takes connections to port %d, and the proxy does not intercept", r.Port)
}

// isOfPort reports whether a route configuration belongs to a Gateway's port. A configuration for HTTP has the port of
// its listener in its name, which may differ from the Gateway's. Its virtual hosts have the Gateway's port in their
// names.
func isOfPort(c Config, name string, port uint32) bool {
	if strings.HasPrefix(name, fmt.Sprintf("https.%d.", port)) || name == fmt.Sprintf("http.%d", port) {
		return true
	}
	routes, err := named[routev3.RouteConfiguration](c[envoy.RouteType], name)
	if err != nil || routes == nil || onDemand(c, routes) != nil {
		return false
	}
	return strings.HasPrefix(name, "http.") && slices.ContainsFunc(routes.GetVirtualHosts(), func(h *routev3.VirtualHost) bool {
		return strings.HasSuffix(h.GetName(), ":"+strconv.Itoa(int(port)))
	})
}

func additional(l *listenerv3.Listener) (list []*corev3.Address) {
	return lists.Map(l.GetAdditionalAddresses(), func(a *listenerv3.AdditionalAddress) *corev3.Address { return a.GetAddress() })
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

// filters evaluates the filters of a chain.
func filters(a *Answer, c Config, chain *listenerv3.FilterChain, r Request) error {
	for _, f := range chain.GetFilters() {
		m, err := unpack(f.GetTypedConfig())
		if err != nil {
			continue // a filter of an unknown type has no known effect
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

// takesMethod reports whether the codec of a connection manager accepts the method of a request. The HTTP/1.1 codec
// knows a list of methods. A request from another proxy has passed such a codec already.
func takesMethod(h *hcmv3.HttpConnectionManager, r Request) bool {
	if r.Inbound && !r.Gateway && r.Identity != "" || r.Proxyless || r.HTTP3 || slices.Contains(r.ALPN, "h2") ||
		h.GetCodecType() == hcmv3.HttpConnectionManager_HTTP2 || h.GetHttpProtocolOptions().GetAllowCustomMethods() {
		return true
	}
	switch r.Method {
	case "ACL", "BIND", "CHECKOUT", "CONNECT", "COPY", "DELETE", "GET", "HEAD", "LINK", "LOCK", "MERGE", "MKACTIVITY", "MKCALENDAR",
		"MKCOL", "MOVE", "MSEARCH", "NOTIFY", "OPTIONS", "PATCH", "POST",
		"PROPFIND", "PROPPATCH", "PURGE", "PUT", "REBIND", "REPORT", "SEARCH", "SOURCE", "SUBSCRIBE", "TRACE", "UNBIND", "UNLINK",
		"UNLOCK", "UNSUBSCRIBE":
		return true
	}
	return false
}

// http evaluates the filters of a connection manager and routes the request.
func http(a *Answer, c Config, h *hcmv3.HttpConnectionManager, r Request) error {
	a.HTTP = true
	if !takesMethod(h, r) {
		a.end(400, "Envoy rejects HTTP/1.1 requests with the method %s: methods are in upper case, and of a fixed list", r.Method)
		return nil
	}
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
		if f, ok := m.(*jwtv3.JwtAuthentication); ok && !tokens(a, f, &r) {
			return nil
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
	if err := onDemand(c, routes); err != nil {
		return err
	}
	a.step(Step{What: "route configuration", Name: cmp.Or(routes.GetName(), "(in the listener)")})
	host, reason := hostFor(routes, r.Authority)
	if host == nil {
		a.end(404, "no virtual host of route configuration %s is for %s", routes.GetName(), r.Authority)
		return nil
	}
	a.step(Step{What: "virtual host", Name: host.GetName(), Reason: reason})
	if host.GetRequireTls() == routev3.VirtualHost_ALL && !r.TLS && !r.HTTP3 { // checked before any route
		a.Answered = true
		a.end(301, "virtual host %s redirects plaintext to HTTPS", host.GetName())
		return nil
	}
	route, step := routeFor(host, r)
	a.step(step)
	if route == nil {
		a.end(404, "no route of virtual host %s matches", host.GetName())
		return nil
	}
	switch action := route.GetAction().(type) {
	case *routev3.Route_Redirect:
		a.Answered = true
		a.end(redirectStatus(action.Redirect), "the route redirects")
	case *routev3.Route_DirectResponse:
		a.Answered = true
		a.end(int(action.DirectResponse.GetStatus()), "the route answers by itself")
	case *routev3.Route_Route:
		share, status, number := aborts(route)
		if share >= 100 {
			a.Answered = true
			a.end(number, "the route has a fault that answers every request with %s", status)
			return nil
		}
		a.Forwarded = forwarded(r, routes, host, route)
		err := pass(a, c, action.Route)
		if share > 0 && a.Status == 200 && a.Reason == "" {
			a.Reason = fmt.Sprintf("the route has a fault that answers %s with %s", percent(faultOf(route).GetAbort().GetPercentage()), status)
		}
		return err
	case *routev3.Route_NonForwardingAction: // a gRPC server takes the call itself
	default:
		a.end(500, "the route has an action of an unknown type")
	}
	return nil
}

// onDemand adds the virtual hosts that are sent by VHDS to their route configuration.
func onDemand(c Config, routes *routev3.RouteConfiguration) error {
	if routes.GetVhds() == nil {
		return nil
	}
	var list []*envoy.Resource
	for _, r := range c[envoy.VirtualHostType] {
		if strings.HasPrefix(r.Name, routes.GetName()+"/") {
			list = append(list, r)
		}
	}
	hosts, err := envoy.Decode[routev3.VirtualHost](list)
	routes.VirtualHosts = append(routes.VirtualHosts, hosts...)
	return err
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
