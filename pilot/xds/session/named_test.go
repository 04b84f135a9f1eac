package session

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/diff"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// TestNamedListeners: a client that names its listeners is translated and sent no others. Each response has all that it
// names, so that what is absent is known to be gone.
func TestNamedListeners(t *testing.T) {
	f, l := xdstest.NewTranslator(), limits.Default()
	s := &Session{
		translator: f, observer: quiet{}, limits: &l, differences: &diff.Cache{}, interner: wire.NewInterner(),
		profile: Profile{Named: true, Grouped: true}, proxy: &node.Proxy{ID: "app.a", Generator: node.GRPC},
	}
	if !s.Start(f.Publish(true, "lds a=1", "lds b=1", "lds c=1")) {
		t.Fatal("not started")
	}
	request := func(nonce string, names ...string) {
		t.Helper()
		if _, err := ask(s, &discoveryv3.DiscoveryRequest{TypeUrl: envoy.ListenerType, ResponseNonce: nonce, ResourceNames: names}); err != nil {
			t.Fatal(err)
		}
	}
	request("", "a", "nobody")
	equalInts(t, "one of two", sizes(s), 1, 0)
	request(s.find(envoy.ListenerType).status.Sent, "a", "b", "nobody")
	equalInts(t, "one more", sizes(s), 2, 0)
	request(s.find(envoy.ListenerType).status.Sent, "a", "b", "nobody")
	s.Adopt(NewPush(f.Publish(true, "lds c=2"), time.Time{}))
	equalInts(t, "another listener changed", sizes(s))
	s.Adopt(NewPush(f.Publish(true, "lds a"), time.Time{}))
	equalInts(t, "one is gone", sizes(s), 1, 0)
	if f.Count("wildcard lds") != 0 {
		t.Error("listeners that nobody named were translated")
	}
}
