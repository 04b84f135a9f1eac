package lds

import (
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/hooks"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// Listeners makes listeners. Safe for concurrent use.
type Listeners struct {
	hooks *hooks.Hooks
	cache *engine.Cache

	outbound        *envoy.MemoTable[outboundKey]
	virtualOutbound *envoy.MemoTable[virtualOutboundKey]
	inbound         *envoy.MemoTable[inboundKey]
	gateways        *envoy.MemoTable[gatewayKey]
	omitted         envoy.NameInterner
}

// New returns Listeners with their resources in a memo and their Sets in a cache.
func New(m *envoy.Memo, h *hooks.Hooks, c *engine.Cache) *Listeners {
	b := builder{h}
	return &Listeners{
		hooks:           h,
		cache:           c,
		outbound:        envoy.NewMemoTable(m, b.buildOutbound),
		virtualOutbound: envoy.NewMemoTable(m, b.buildVirtualOutbound),
		inbound:         envoy.NewMemoTable(m, b.buildInbound),
		gateways:        envoy.NewMemoTable(m, b.buildGateway),
	}
}

// builder builds listeners. Its methods are pure functions of their keys.
type builder struct{ *hooks.Hooks }

// Get returns every listener of a cohort.
func (m *Listeners) Get(v *view.View, c cohort.Key, _ *envoy.Names) (envoy.Union, error) {
	k, l := engine.Key{Type: envoy.ListenerType, Listeners: c.Listeners.Weak()}, c.Listeners.Value()
	shared := cohort.Inputs{Client: l.Client, Outbound: l.Outbound}
	if l.Client.Type == node.Router {
		all := view.Set(m.cache, k, v, func(v *view.View) engine.Generator[struct{}] { return m.Gateway(v, shared) })
		return envoy.Union{Shared: all.Set}, nil
	}
	u := envoy.Union{Shared: view.Set(m.cache, k, v, func(v *view.View) engine.Generator[BindKey] { return m.Outbound(v, shared) }).Set}
	if !c.Inbound.None() {
		u.Own = view.Set(m.cache, engine.Key{Type: envoy.ListenerType, Inbound: c.Inbound.Weak()}, v,
			func(v *view.View) engine.Generator[struct{}] {
				return m.Inbound(v, c.Inbound.Value())
			}).Set
		u.Omit = m.ownHeadlessListeners(c, u.Shared)
	}
	return u, nil
}
