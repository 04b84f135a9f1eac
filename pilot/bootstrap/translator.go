package bootstrap

import (
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// idleResources is how many encoded resources that no proxy uses at present are kept for those that may come back.
const idleResources = 60000

// translator lets the DiscoveryServer, which does not know what a cohort is, use a translate.Translator, which does.
type translator struct{ *translate.Translator }

func (t translator) Join(s *snapshot.Snapshot, p *node.Proxy) xds.Cohort {
	return t.Translator.Join(s, p)
}

func (t translator) Wildcard(s *snapshot.Snapshot, c xds.Cohort, typeURL string) envoy.Union {
	return t.Translator.Wildcard(s, c.(cohort.Proxy), typeURL)
}

func (t translator) Named(s *snapshot.Snapshot, c xds.Cohort, typeURL, name string) *envoy.Resource {
	return t.Translator.Named(s, c.(cohort.Proxy), typeURL, name)
}

func (t translator) Assignments(s *snapshot.Snapshot, c xds.Cohort, key registry.ServiceKey) []string {
	return t.Translator.Assignments(s, c.(cohort.Proxy), key)
}
