package ecds

import (
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/hooks"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// Extensions makes configurations of filters. Safe for concurrent use.
type Extensions struct {
	cache   *engine.Cache
	hooks   *hooks.Hooks
	configs *envoy.MemoTable[hooks.Extension]
}

// New returns Extensions with their resources in a memo and their Sets in a cache.
func New(m *envoy.Memo, h *hooks.Hooks, c *engine.Cache) *Extensions {
	return &Extensions{cache: c, hooks: h, configs: envoy.NewMemoTable(m, builder{h}.build)}
}

// Get returns the configurations of a list of names, and leaves out names that no filter of the proxy has. They depend
// only on selected objects, which are a part of the cohort, so that Dirty does not affect them.
func (m *Extensions) Get(v *view.View, c cohort.Key, list *envoy.Names) (envoy.Union, error) {
	selections := c.Listeners.Value().Outbound.Selections
	s := engine.GetByName(m.cache, engine.Key{Type: envoy.ExtensionType, Listeners: c.Listeners.Weak()}, v.Revision, list, engine.ByName{
		Affected: func(*scope.Dirty, *envoy.Names) []string { return nil },
		Build: func(name string) *envoy.Resource {
			if e, ok := m.hooks.Extension(name, selections); ok {
				return m.configs.Get(e)
			}
			return nil
		},
	})
	return envoy.Union{Shared: s.Set}, s.Err()
}

// builder builds configurations, each from its object alone.
type builder struct{ *hooks.Hooks }

func (b builder) build(e hooks.Extension) *envoy.Resource {
	c := b.ExtensionConfig(e)
	return envoy.NewResource(c.Name, c)
}
