package pcds

import (
	"slices"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// Roots makes ProxyConfigs with the roots to trust. Safe for concurrent use.
type Roots struct {
	cache   *engine.Cache
	configs *envoy.MemoTable[frozen.List[string]]
}

// New returns Roots with their resources in a memo and their Sets in a cache.
func New(m *envoy.Memo, c *engine.Cache) *Roots {
	return &Roots{cache: c, configs: envoy.NewMemoTable(m, build)}
}

// Get returns the ProxyConfig, which is the same for all cohorts.
func (m *Roots) Get(v *view.View, _ cohort.Key, _ *envoy.Names) (envoy.Union, error) {
	return envoy.Union{Shared: view.Set(m.cache, engine.Key{Type: envoy.ProxyConfigType}, v, m.Generator).Set}, nil
}

// Generator generates the ProxyConfig of a view.
func (m *Roots) Generator(v *view.View) engine.Generator[struct{}] {
	return engine.Single(func() []*envoy.Resource {
		roots := v.Roots()
		if roots.Empty() {
			return nil
		}
		return []*envoy.Resource{m.configs.Get(roots)}
	}, engine.IfRoots)
}

// build makes a ProxyConfig of roots.
func build(roots frozen.List[string]) *envoy.Resource {
	return envoy.NewResource("", &meshv1alpha1.ProxyConfig{CaCertificatesPem: slices.Collect(roots.All)})
}
