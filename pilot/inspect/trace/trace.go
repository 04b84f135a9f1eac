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
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
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

	Objects Objects // names of the objects that the proxy's resources come from; nil for the names in their metadata

	said    map[string]string // metadata that filters of policies have set for later filters
	payload map[string]any    // claims of the valid token; nil if there is none

	Gateway   bool // whether the proxy is a gateway, which listens by itself
	Inbound   bool // whether the connection reaches the proxy of its destination workload
	Proxyless bool // whether there is no proxy because the application uses xDS itself, as gRPC does
}

// Objects are the objects from which resources were made.
type Objects interface {
	// NameOf returns the name of the object of an origin, as sentences have it, or "" if it is not known.
	NameOf(Origin) string
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

	Filter string // name of a filter whose configuration does not name the object that added it
}

// Answer is the result for a request at one proxy.
type Answer struct {
	Steps   []Step   `json:"steps"`
	Status  int      `json:"status"` // 200 if it is passed on, 0 if the connection is closed
	Reason  string   `json:"reason,omitempty"`
	Targets []Target `json:"targets,omitempty"`
	HTTP    bool     `json:"http"`            // whether the proxy reads requests, and not only connections
	Asked   bool     `json:"asked,omitempty"` // whether an external authorizer is asked, which may deny the request
	// Depends has a sentence, with the name of an object, for each thing that is not known and may change the answer.
	Depends []string `json:"depends,omitempty"`
	// Answered says that the proxy answers the request itself, so that no application does.
	Answered bool `json:"answered,omitempty"`

	Forwarded Request `json:"-"` // the request as it is passed on, with the path and the headers that routes have changed
}

func (a *Answer) step(s Step) { a.Steps = append(a.Steps, s) }

// depends adds a sentence about something that is not known and may change the answer.
func (a *Answer) depends(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(a.Depends, text) {
		a.Depends = append(a.Depends, text)
	}
}

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
		return a, (&stream{Answer: a, config: c, request: r}).http(h)
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
	err = (&stream{Answer: a, config: c, request: r}).network(chain)
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

func unpack(any *anypb.Any) (proto.Message, error) {
	if any == nil {
		return nil, fmt.Errorf("there is no configuration")
	}
	return any.UnmarshalNew()
}
