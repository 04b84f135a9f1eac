package rds

import (
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/hooks"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// Routes makes route configurations. Safe for concurrent use.
type Routes struct {
	hooks *hooks.Hooks
	cache *engine.Cache

	headers      *envoy.MemoTable[headerKey]
	virtualHosts *envoy.MemoTable[virtualHostKey]
	routes       *envoy.MemoTable[routeKey]
}

// New returns Routes with their resources in a memo and their Sets in a cache.
func New(m *envoy.Memo, h *hooks.Hooks, c *engine.Cache) *Routes {
	return &Routes{
		hooks: h, cache: c,
		headers:      envoy.NewMemoTable(m, buildHeader),
		virtualHosts: envoy.NewMemoTable(m, builder{h}.buildVirtualHost),
		routes:       envoy.NewMemoTable(m, buildRoute),
	}
}

// builder builds virtual hosts. Its methods are pure functions of their keys.
type builder struct{ *hooks.Hooks }

// Get returns the route configurations of a list of names.
func (m *Routes) Get(v *view.View, c cohort.Key, list *envoy.Names) (envoy.Union, error) {
	s := engine.GetByName(m.cache, engine.Key{Type: envoy.RouteType, Client: c.Client.Weak()}, v.Revision, list, engine.ByName{
		Affected: func(d *scope.Dirty, list *envoy.Names) []string {
			if d.NoHosts() {
				return nil
			}
			return list.All()
		},
		Build: func(name string) *envoy.Resource {
			if c.Client.Value().Type == node.Router {
				return m.gatewayRoute(v, c.Client, name)
			}
			return m.sidecarRoute(v, c.Client, name)
		},
	})
	return envoy.Union{Shared: s.Set}, s.Err()
}

// gatewayRoute returns a gateway's route configuration. It does not cache the one for a name that no server has.
func (m *Routes) gatewayRoute(v *view.View, of cohort.Handle[cohort.Client], name string) *envoy.Resource {
	c := of.Value()
	hosts := func(v *view.View) engine.Generator[string] { return m.GatewayHosts(v, c, name) }
	if len(v.Gateways.ServersOf(c, name)) == 0 {
		return buildRoute(routeKeyOf(c, name, hosts(v).Generate(), buildHeader))
	}
	return m.route(v, of, name, hosts)
}

// sidecarRoute returns a sidecar's route configuration. It does not cache the one for a name that no listener has. That
// one has no virtual host, unless a proxy that subscribes to virtual hosts by VHDS may still have its listener.
func (m *Routes) sidecarRoute(v *view.View, of cohort.Handle[cohort.Client], name string) *envoy.Resource {
	c := of.Value()
	b := m.sidecarRouteBuilder(v, c, name)
	switch {
	case b == nil:
		return buildHeader(headerKey{name: name})
	case b.egress == nil && divisible(name): // its listener may be draining
		hosts := engine.Single(func() []*envoy.Resource { return []*envoy.Resource{b.blackholeHost(b.port)} }, engine.IfAll)
		hosts.Content = true
		return buildRoute(routeKeyOf(c, name, hosts.Generate(), buildHeader))
	case b.egress == nil, b.lacksService():
		return buildHeader(headerKey{name: name})
	}
	return m.route(v, of, name, func(v *view.View) engine.Generator[string] { return b.in(v).hosts() })
}

// route returns a route configuration with the virtual hosts that a generator makes.
func (m *Routes) route(v *view.View, of cohort.Handle[cohort.Client], name string,
	hosts func(*view.View) engine.Generator[string]) *envoy.Resource {
	s := view.Set(m.cache, engine.Key{Type: envoy.VirtualHostType, Part: name, Client: of.Weak()}, v, hosts)
	k := routeKeyOf(of.Value(), name, s, m.headers.Get)
	if k.hosts.Len() == 0 { // the configuration consists of its header alone
		return k.header
	}
	return m.routes.Get(k)
}
