package cds

import (
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/hooks"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// Clusters makes clusters. Safe for concurrent use.
type Clusters struct {
	hooks *hooks.Hooks
	cache *engine.Cache

	clusters *envoy.MemoTable[clusterKey]
	inbounds *envoy.MemoTable[inboundClusterKey]
	fixed    *envoy.MemoTable[fixedClusterKey]
}

// New returns Clusters with their resources in a memo and their Sets in a cache.
func New(m *envoy.Memo, h *hooks.Hooks, c *engine.Cache) *Clusters {
	b := builder{h}
	return &Clusters{
		hooks: h, cache: c,
		clusters: envoy.NewMemoTable(m, b.buildCluster),
		inbounds: envoy.NewMemoTable(m, b.buildInboundCluster),
		fixed:    envoy.NewMemoTable(m, b.buildFixedCluster),
	}
}

// builder builds clusters. Its methods are pure functions of their keys.
type builder struct{ *hooks.Hooks }

// Get returns every cluster of a cohort.
func (m *Clusters) Get(v *view.View, c cohort.Key, _ *envoy.Names) (envoy.Union, error) {
	out := view.Set(m.cache, engine.Key{Type: envoy.ClusterType, Client: c.Client.Weak()}, v, func(v *view.View) engine.Generator[string] {
		return m.Outbound(v, c.Client.Value())
	})
	if c.Inbound.None() {
		return envoy.Union{Shared: out.Set}, nil
	}
	in := view.Set(m.cache, engine.Key{Type: envoy.ClusterType, Inbound: c.Inbound.Weak()}, v, func(v *view.View) engine.Generator[struct{}] {
		return m.Inbound(v, c.Inbound.Value())
	})
	return envoy.Union{Shared: out.Set, Own: in.Set}, nil
}
