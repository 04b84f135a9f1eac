package rds

import (
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/hooks"
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
