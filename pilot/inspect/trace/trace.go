package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
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
	Opaque    bool // whether the connection carries another protocol than HTTP, so that it has no request
	PROXY     bool // whether the connection begins with a header of the PROXY protocol
	Taken     bool // whether it is known that the listener has taken the connection

	// SourceAddress and Identity describe the connection at the receiving side.
	SourceAddress string // address of the client; empty if it is not known
	OwnAddress    string // address of the proxy, if it is a gateway that listens by itself; empty if it is not known
	Identity      string // SPIFFE identity of the certificate; empty if there is none
	Certificate   bool   // whether the client has a certificate that is not of the mesh

	Claims map[string]any // of a token wherever policies look for one, in addition to those in headers; nil if there is none
	// TokenHeader is the JOSE header of the token with these claims, or nil if it is not known.
	TokenHeader map[string]any
	Now         time.Time // time at which tokens are checked for expiry; zero if none expires

	Objects Objects // names of the objects that the proxy's resources come from; nil for the names in their metadata

	unclear map[string]string // by header, what its value depends on, if that is not known

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
	What    string      `json:"what"` // listener, filter chain, virtual host, route, ...
	Name    string      `json:"name"`
	Reason  string      `json:"reason,omitempty"`
	Details []string    `json:"details,omitempty"`
	Origin  Origin      `json:"-"`
	From    string      `json:"from,omitempty"` // name of Origin; optional
	Objects []kinds.Key `json:"-"`              // the objects that From names
	Lost    []Lost      `json:"lost,omitempty"` // alternatives that lost, with the reasons
	// Unasked says that the step denies what an authorizer would decide, because none can be asked.
	Unasked bool `json:"-"`
}

// Lost is an alternative that does not apply.
type Lost struct {
	Name    string      `json:"name"`
	Reason  string      `json:"reason"`
	Origin  Origin      `json:"-"`
	From    string      `json:"from,omitempty"`
	Objects []kinds.Key `json:"-"` // the objects that From names
}

// Answer is the result for a request at one proxy.
type Answer struct {
	Steps  []Step `json:"steps"`
	Status int    `json:"status"` // 200 if it is passed on, 0 if the connection is closed
	Reason string `json:"reason,omitempty"`
	// Cause is what the proxy's access log has as the cause. It is empty if the request is passed on, or if that is not
	// known.
	Cause accesslog.Cause `json:"-"`
	// Rule is the rule of an AuthorizationPolicy that refuses the request.
	Rule Origin `json:"-"`
	// ByAddress says that a policy reads the address of the client.
	ByAddress bool `json:"-"`
	// Timeout says that the route has a timeout, which may end the request.
	Timeout bool     `json:"-"`
	Targets []Target `json:"targets,omitempty"`
	HTTP    bool     `json:"http"` // whether the proxy reads requests, and not only connections
	// TCP says that the filter chain of the connection does not read HTTP, even if the connection never gets that far.
	TCP   bool `json:"-"`
	Asked bool `json:"asked,omitempty"` // whether an external authorizer is asked, which may deny the request
	// Depends has a sentence, with the name of an object, for each thing that is not known and may change the answer.
	Depends []Dependency `json:"depends,omitempty"`
	// Answered says that the proxy answers the request itself, so that no application does.
	Answered bool `json:"answered,omitempty"`
	// Waits are the secrets that the proxy lacks and that only other filter chains of the listener need. Envoy waits for
	// them before a change of the listener comes into force.
	Waits []string `json:"-"`

	chooses bool                         // whether the request names its endpoint, by a cookie or a header
	manager *hcmv3.HttpConnectionManager // what reads requests; nil for connections

	Forwarded Request `json:"-"` // the request as it is passed on, with the path and the headers that routes have changed
}

func (a *Answer) step(s Step) { a.Steps = append(a.Steps, s) }

// depends adds a sentence about something that is not known and may change the answer.
func (a *Answer) depends(format string, args ...any) {
	a.dependsOn(accesslog.Unknown, 0, format, args...)
}

// dependsOn is depends, with the cause that a log would have, and the status of the other answer.
func (a *Answer) dependsOn(cause accesslog.Cause, status int, format string, args ...any) {
	if d := (Dependency{fmt.Sprintf(format, args...), cause, status}); !slices.Contains(a.Depends, d) {
		a.Depends = append(a.Depends, d)
	}
}

// end ends the answer. The status is 0 if the connection is closed.
func (a *Answer) end(cause accesslog.Cause, status int, format string, args ...any) {
	a.Cause, a.Status, a.Reason = cause, status, fmt.Sprintf(format, args...)
}

// Follow returns what a proxy does with a request.
func Follow(c Config, r Request) (*Answer, error) {
	r.Method = cmp.Or(r.Method, "GET")
	r.Path = cmp.Or(r.Path, "/")
	a := &Answer{Status: 200, Forwarded: r}
	listeners, err := envoy.Decode[listenerv3.Listener](c[envoy.ListenerType])
	if err != nil {
		return nil, err
	}
	l, reason := listenerFor(listeners, r)
	if l != nil && l.GetApiListener() != nil {
		a.step(Step{What: "listener", Name: l.GetName(), Reason: reason})
		h := &hcmv3.HttpConnectionManager{}
		if err := l.GetApiListener().GetApiListener().UnmarshalTo(h); err != nil {
			return nil, fmt.Errorf("read %s: %w", l.GetName(), err)
		}
		return a, (&stream{Answer: a, config: c, request: r, ends: endsOf(l, r)}).http(h)
	}
	if l == nil {
		a.end(accesslog.NoListener, 0, "%s", reason)
		return a, nil
	}
	a.step(Step{What: "listener", Name: l.GetName(), Reason: reason})
	if at := l.GetAddress().GetSocketAddress().GetAddress(); r.Gateway && r.Address == "" && at != "0.0.0.0" && at != "::" {
		a.depends("listener %s takes connections to %s alone, and which address is called is not known", l.GetName(), at)
	}
	if !greeted(a, l, &r) {
		return a, nil
	}
	chain, lost, reason := chainFor(l, r)
	if chain == nil {
		a.step(Step{What: "filter chain", Name: "none", Reason: reason, Lost: lost})
		a.end(accesslog.NoChain, 0, "no filter chain of listener %s matches the connection", l.GetName())
		return a, nil
	}
	tls := downstreamTLS(chain)
	a.step(Step{What: "filter chain", Name: chainName(chain), Reason: reason, Lost: lost,
		Origin: originOfChain(chain), Details: transport(tls, r)})
	a.TCP = !isHTTP(chain)
	if !handshake(a, c, chain, tls, r) {
		return a, nil
	}
	c.waits(a, l, chain)
	r.Certificate = r.Certificate && asksForCertificate(tls)
	err = (&stream{Answer: a, config: c, request: r, ends: endsOf(l, r)}).network(chain)
	if r.PROXY && readsPROXY(l) == nil && a.Status == 200 && !a.Answered {
		a.depends("the application must read the header of the PROXY protocol with which the connection begins")
	}
	if tls != nil { // TLS is terminated: what it contains is passed on
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

func originOfChain(chain *listenerv3.FilterChain) Origin {
	return Origin{Path: configOf(chain.GetMetadata()), Chain: chain}
}

func unpack(any *anypb.Any) (proto.Message, error) {
	if any == nil {
		return nil, fmt.Errorf("there is no configuration")
	}
	return any.UnmarshalNew()
}
