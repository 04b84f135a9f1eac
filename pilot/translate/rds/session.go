package rds

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	sessionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	cookiev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	headerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/type/http/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/registry"
)

// sessionFilter is the name of the filter that sends the requests of a session to one endpoint.
const sessionFilter = "envoy.filters.http.stateful_session"

// SessionFilter returns the filter of connection managers for persistent sessions. The zero Session has no effect by
// itself: virtual hosts override it.
func SessionFilter(s registry.Session) *hcmv3.HttpFilter {
	return envoy.HTTPFilter(sessionFilter, envoy.Any(sessionState(s)))
}

func sessionState(s registry.Session) *sessionv3.StatefulSession {
	state := &corev3.TypedExtensionConfig{}
	switch {
	case s.Cookie != "":
		state.Name = "envoy.http.stateful_session.cookie"
		state.TypedConfig = envoy.Any(&cookiev3.CookieBasedSessionState{Cookie: &httpv3.Cookie{Name: s.Cookie, Path: s.Path}})
	case s.Header != "":
		state.Name = "envoy.http.stateful_session.header"
		state.TypedConfig = envoy.Any(&headerv3.HeaderBasedSessionState{Name: s.Header})
	default:
		return &sessionv3.StatefulSession{}
	}
	return &sessionv3.StatefulSession{SessionState: state}
}

// setSession makes a virtual host send the requests of a session to one endpoint.
func setSession(h *routev3.VirtualHost, s registry.Session) {
	h.TypedPerFilterConfig = map[string]*anypb.Any{sessionFilter: sessionOverride(s)}
}

func sessionOverride(s registry.Session) *anypb.Any {
	return envoy.Any(&sessionv3.StatefulSessionPerRoute{
		Override: &sessionv3.StatefulSessionPerRoute_StatefulSession{StatefulSession: sessionState(s)},
	})
}

// setRouteSessions has the requests of each route stay in a session of its first destination that asks for one.
func setRouteSessions(routes []*routev3.Route, destinations frozen.List[destination]) {
	byHost := map[string]registry.Session{}
	for d := range destinations.All {
		if d.service != nil && names.HasPersistentSession(d.service.Labels) {
			byHost[d.host] = registry.PersistentSession(d.service.Labels)
		}
	}
	if len(byHost) == 0 {
		return
	}
	for _, r := range routes {
		clusters := []string{r.GetRoute().GetCluster()}
		for _, c := range r.GetRoute().GetWeightedClusters().GetClusters() {
			clusters = append(clusters, c.Name)
		}
		for _, name := range clusters {
			c, _ := names.ParseCluster(name)
			if s, keeps := byHost[c.Host]; keeps {
				if r.TypedPerFilterConfig == nil {
					r.TypedPerFilterConfig = map[string]*anypb.Any{}
				}
				r.TypedPerFilterConfig[sessionFilter] = sessionOverride(s)
				break
			}
		}
	}
}

// sessionOf returns how requests to a service name their endpoint, or the zero Session. The service may be nil.
func (b *routeBuilder) sessionOf(s *registry.Service) registry.Session {
	if s == nil || !b.view.PersistentSessions() {
		return registry.Session{}
	}
	return registry.PersistentSession(s.Labels)
}

// session returns how requests to a virtual host of a gateway name their endpoint. The first VirtualService decides, by
// its destinations whose host is one of its own hosts. If several of them are services with sessions, the last one
// applies.
func (b *gatewayRouteBuilder) session(k virtualHostKey) (session registry.Session) {
	if !b.view.PersistentSessions() {
		return session
	}
	for x := range k.bindings.All {
		hosts := virtualServiceHosts(x, b.view.Domain())
		for d := range k.destinations.All {
			if s := b.sessionOf(d.service); s != (registry.Session{}) && slices.Contains(hosts, d.host) && b.routedHost(d.host) != nil {
				session = s
			}
		}
		break
	}
	return session
}
