package trace

import (
	"fmt"
	"slices"
	"strings"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/accesslog"
)

// Prefixes of the types of Envoy's filters.
const (
	prefixHTTP    = "type.googleapis.com/envoy.extensions.filters.http."
	prefixNetwork = "type.googleapis.com/envoy.extensions.filters.network."
)

// httpFilters has a function for each type of HTTP filter that is evaluated. A filter of a type that is neither here
// nor in passiveHTTP makes the answer depend on it.
var httpFilters = map[string]evaluate{
	prefixHTTP + "cors.v3.Cors":                        as(cors),
	prefixHTTP + "ext_authz.v3.ExtAuthz":               as(httpExtAuthz),
	prefixHTTP + "fault.v3.HTTPFault":                  as(fault),
	prefixHTTP + "header_mutation.v3.HeaderMutation":   as(headerMutation),
	prefixHTTP + "local_ratelimit.v3.LocalRateLimit":   as(httpLocalRateLimit),
	prefixHTTP + "ratelimit.v3.RateLimit":              as(httpRateLimit),
	prefixHTTP + "jwt_authn.v3.JwtAuthentication":      as(jwtAuthn),
	prefixHTTP + "rbac.v3.RBAC":                        as(httpRBAC),
	prefixHTTP + "set_filter_state.v3.Config":          as(httpSetFilterState),
	prefixHTTP + "stateful_session.v3.StatefulSession": as(statefulSession),
}

// networkFilters has a function for each type of network filter that is evaluated. A filter of a type that is neither
// here nor in passiveNetwork makes the answer depend on it.
var networkFilters = map[string]evaluate{
	prefixNetwork + "ext_authz.v3.ExtAuthz":                            as(networkExtAuthz),
	prefixNetwork + "http_connection_manager.v3.HttpConnectionManager": connectionManager,
	prefixNetwork + "local_ratelimit.v3.LocalRateLimit":                as(networkLocalRateLimit),
	prefixNetwork + "ratelimit.v3.RateLimit":                           as(networkRateLimit),
	prefixNetwork + "rbac.v3.RBAC":                                     as(networkRBAC),
	prefixNetwork + "set_filter_state.v3.Config":                       as(networkSetFilterState),
	prefixNetwork + "tcp_proxy.v3.TcpProxy":                            tcpProxy,
}

// stream is a request, or a connection, on its way through the filters of a chain.
type stream struct {
	*Answer
	config  Config
	request Request // the request as the filters before have changed it
	ends

	said    map[string]said // metadata that filters of policies have set for later filters
	payload map[string]any  // claims of the valid token; nil if there is none
	tokenOn string          // what it depends on whether there is a token, and which; empty if that is known

	// For HTTP: the routes, and the one that the request has, which filters read too.
	routes *routev3.RouteConfiguration
	matched
}

// filter is a filter of a chain. Its configuration is nil if it is not known.
type filter struct {
	name   string
	config *anypb.Any
}

// evaluate evaluates a filter, and reports whether the request or the connection goes on to the next one.
type evaluate func(*stream, filter) (bool, error)

// as returns the evaluation of a filter with a message of its type.
func as[T any, M interface {
	*T
	proto.Message
}](do func(*stream, filter, M) bool) evaluate {
	return func(x *stream, f filter) (bool, error) {
		m := M(new(T))
		if err := f.config.UnmarshalTo(m); err != nil {
			return false, fmt.Errorf("read filter %s: %w", f.name, err)
		}
		return do(x, f, m), nil
	}
}

// network evaluates the filters of a chain.
func (x *stream) network(chain *listenerv3.FilterChain) error {
	for _, l := range chain.GetFilters() {
		f, err := x.filter(l.GetName(), l.GetTypedConfig(), l.GetConfigDiscovery())
		if err != nil {
			return err
		}
		do, known := networkFilters[f.config.GetTypeUrl()]
		switch {
		case known:
			if goesOn, err := do(x, f); err != nil || !goesOn {
				return err
			}
		case !slices.Contains(passiveNetwork, f.config.GetTypeUrl()):
			x.dependsOn(accesslog.Direct, 0, "network filter %s is not evaluated, and may close the connection or answer itself", x.named(f))
		}
	}
	x.end(accesslog.Unknown, 0, "no filter of the chain passes the connection on")
	return nil
}

// requestFilters evaluates the filters of a connection manager, and reports whether the request reaches the router.
func (x *stream) requestFilters(list []*hcmv3.HttpFilter) (bool, error) {
	disabled := map[string]bool{} // decided by the route before the first filter
	for _, h := range list {
		disabled[h.GetName()] = x.disabled(h)
	}
	for _, h := range list {
		f, err := x.filter(h.GetName(), h.GetTypedConfig(), h.GetConfigDiscovery())
		if err != nil {
			return false, err
		}
		x.byCluster(f)
		do, known := httpFilters[f.config.GetTypeUrl()]
		switch {
		case disabled[f.name]:
		case known:
			if goesOn, err := do(x, f); err != nil || !goesOn {
				return false, err
			}
		case !slices.Contains(passiveHTTP, f.config.GetTypeUrl()):
			x.dependsOn(accesslog.Direct, 0, "HTTP filter %s is not evaluated, and may answer itself", x.named(f))
			x.request.blur(anyHeader, "what HTTP filter "+x.named(f)+" changes")
		}
	}
	return true, nil
}

// filter returns a filter with its configuration, which may be a resource of its own.
func (x *stream) filter(name string, config *anypb.Any, discovery *corev3.ExtensionConfigSource) (filter, error) {
	if discovery != nil {
		sent, err := named[corev3.TypedExtensionConfig](x.config[envoy.ExtensionType], name)
		if err != nil {
			return filter{}, err
		}
		if config = sent.GetTypedConfig(); config == nil {
			config = discovery.GetDefaultConfig()
		}
	}
	return filter{name, unwrapped(config)}, nil
}

// unwrapped returns the configuration in a TypedStruct. It is encoded as its type if this program links the type.
func unwrapped(config *anypb.Any) *anypb.Any {
	old, wrapped := &udpav1.TypedStruct{}, &xdsv3.TypedStruct{}
	var typeURL string
	var value *structpb.Struct
	switch {
	case config.MessageIs(old) && config.UnmarshalTo(old) == nil:
		typeURL, value = old.GetTypeUrl(), old.GetValue()
	case config.MessageIs(wrapped) && config.UnmarshalTo(wrapped) == nil:
		typeURL, value = wrapped.GetTypeUrl(), wrapped.GetValue()
	default:
		return config
	}
	if !strings.Contains(typeURL, "/") {
		typeURL = "type.googleapis.com/" + typeURL
	}
	out := &anypb.Any{TypeUrl: typeURL}
	linked, err := protoregistry.GlobalTypes.FindMessageByURL(typeURL)
	if err != nil {
		return out
	}
	m := linked.New().Interface()
	if text, err := protojson.Marshal(value); err != nil || protojson.Unmarshal(text, m) != nil {
		return &anypb.Any{TypeUrl: config.GetTypeUrl()} // Envoy would refuse it
	}
	out.Value, err = proto.Marshal(m)
	if err != nil {
		return &anypb.Any{TypeUrl: config.GetTypeUrl()}
	}
	return out
}

// named returns the name of a filter with the object that added it, if that is known.
func (x *stream) named(f filter) string { return f.name + x.of(Origin{Filter: f.name}) }

// of returns " of OBJECT" for an origin, or "" if the object is not known.
func (x *stream) of(o Origin) string {
	name := o.object()
	if x.request.Objects != nil {
		name = x.request.Objects.NameOf(o)
	}
	if name == "" {
		return ""
	}
	return " of " + name
}

// perRoute returns what the cluster of the route, the route, its virtual host and its route configuration say of a
// filter, the most specific first.
func (x *stream) perRoute(name string) (list []*anypb.Any) {
	if x.route == nil {
		return nil
	}
	all := []map[string]*anypb.Any{x.route.GetTypedPerFilterConfig(), x.host.GetTypedPerFilterConfig(), x.routes.GetTypedPerFilterConfig()}
	if chosen := x.clusters(); len(chosen) == 1 {
		all = slices.Insert(all, 0, chosen[0].filters)
	}
	for _, configs := range all {
		if c := configs[name]; c != nil {
			list = append(list, c)
		}
	}
	return list
}

// choice is a cluster that a route may choose, with what the route says for it alone.
type choice struct {
	name    string
	weight  uint32
	filters map[string]*anypb.Any // settings of filters
	headers change                // of requests
	host    string                // that requests get; empty for their own
}

// clusters returns the clusters that the route may choose. It is empty if the route chooses none, or names none.
func (x *stream) clusters() (list []choice) {
	action := x.route.GetRoute()
	if name := action.GetCluster(); name != "" {
		return []choice{{name: name, weight: 1}}
	}
	for _, w := range action.GetWeightedClusters().GetClusters() {
		list = append(list, choice{w.GetName(), w.GetWeight().GetValue(), w.GetTypedPerFilterConfig(),
			change{w.GetRequestHeadersToAdd(), w.GetRequestHeadersToRemove()}, w.GetHostRewriteLiteral()})
	}
	return withWeight(list)
}

// withWeight returns the choices that are ever made.
func withWeight(list []choice) []choice {
	return slices.DeleteFunc(list, func(c choice) bool { return c.weight == 0 })
}

// byCluster adds that the settings of a filter depend on the cluster that the route chooses, if they do.
func (x *stream) byCluster(f filter) {
	chosen := x.clusters()
	if len(chosen) > 1 && slices.ContainsFunc(chosen, func(c choice) bool { return c.filters[f.name] != nil }) {
		x.depends("HTTP filter %s has settings of its own for some clusters of the route, and which one is chosen is not known", x.named(f))
	}
}

// disabled reports whether a filter is left out for a request.
func (x *stream) disabled(h *hcmv3.HttpFilter) bool {
	for _, config := range x.perRoute(h.GetName()) {
		c := &routev3.FilterConfig{}
		return config.MessageIs(c) && config.UnmarshalTo(c) == nil && c.GetDisabled()
	}
	return h.GetDisabled()
}

// override reads the most specific configuration of that type for a filter, and reports whether there is one.
func (x *stream) override(f filter, m proto.Message) bool {
	for _, config := range x.perRoute(f.name) {
		if c := (&routev3.FilterConfig{}); config.MessageIs(c) && config.UnmarshalTo(c) == nil {
			config = c.GetConfig()
		}
		if config = unwrapped(config); config.MessageIs(m) && config.UnmarshalTo(m) == nil {
			return true
		}
	}
	return false
}
