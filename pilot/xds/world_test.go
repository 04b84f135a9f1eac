package xds

import (
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// Worlds of tests, each a Standalone but for one method.
type (
	knowing struct {
		Standalone
		known   func(*snapshot.Snapshot, *node.Proxy) bool
		pending func(*node.Proxy) bool // optional
	}
	accounting struct {
		Standalone
		account func(*snapshot.Snapshot, *node.Proxy) string
	}
	locating struct {
		Standalone
		located func(*snapshot.Snapshot, identity.Peer, *node.Proxy) bool
	}
	wanting struct {
		Standalone
		want func([]kinds.Key)
	}
	tracing struct {
		Standalone
		sources func(*envoy.Resource) []pushes.Object
	}
	debugging struct {
		Standalone
		pages func(identity.Peer, string, []string) ([]*anypb.Any, error)
	}
)

func (w knowing) WorkloadKnown(s *snapshot.Snapshot, p *node.Proxy) bool { return w.known(s, p) }
func (w knowing) ClusterPending(p *node.Proxy) bool                      { return w.pending != nil && w.pending(p) }

func (w accounting) ServiceAccount(s *snapshot.Snapshot, p *node.Proxy) string {
	return w.account(s, p)
}

func (w locating) InCluster(s *snapshot.Snapshot, peer identity.Peer, p *node.Proxy) bool {
	return w.located(s, peer, p)
}

func (w wanting) WantSecrets(keys []kinds.Key) { w.want(keys) }

func (w tracing) Sources(r *envoy.Resource) []pushes.Object { return w.sources(r) }

func (w debugging) DebugPages(peer identity.Peer, typeURL string, names []string) ([]*anypb.Any, error) {
	return w.pages(peer, typeURL, names)
}
