package bootstrap

import (
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
	"github.com/istiod-lite/istiod-lite/pilot/xds/api"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// idleResources bounds the bytes of encoded resources that are kept though no proxy may use them, for those that come
// back.
const idleResources = 32 << 20

// translator lets the DiscoveryServer, which does not know what a cohort is, use a translate.Translator, which does.
// Clients that want objects get them from a Generator.
type translator struct {
	*translate.Translator
	objects *api.Generator
}

// readers is the cohort of those who are sent objects: all get the same.
type readers struct{}

func newTranslator(t *translate.Translator, relay bool) translator {
	return translator{t, api.New(relay)}
}

func (t translator) ResolveCohort(s *snapshot.Snapshot, p *node.Proxy) session.Cohort {
	if xds.IsAPIClient(p) {
		return readers{}
	}
	return t.Translator.ResolveCohort(s, p)
}

func (t translator) NeedsReassign(s *snapshot.Snapshot, p *node.Proxy, last session.Cohort, since uint64) bool {
	proxies, ok := last.(cohort.Key)
	return !ok || t.Translator.NeedsReassign(s, p, proxies, since)
}

func (t translator) Departed(now, last session.Cohort) (session.Cohort, bool) {
	proxies, ok := now.(cohort.Key)
	before, same := last.(cohort.Key)
	if !ok || !same {
		return now, false
	}
	return proxies.KeepInbound(before)
}

func (t translator) Shared(c session.Cohort) session.Cohort {
	proxies, ok := c.(cohort.Key)
	if !ok {
		return nil
	}
	return proxies.Shared()
}

func (t translator) Get(s *snapshot.Snapshot, c session.Cohort, typeURL string, names *envoy.Names) (envoy.Union, error) {
	proxies, ok := c.(cohort.Key)
	if !ok {
		return envoy.Union{Shared: t.objects.Set(s, typeURL)}, nil
	}
	return t.Translator.Get(s, proxies, typeURL, names)
}
