package session

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/diff"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

type quiet struct{}

func (quiet) StandIn(string) *envoy.Resource { return nil }

func (quiet) MayHave(string) bool { return true }

func (quiet) Panicked(string, error) {}
func (quiet) Suppressed(string)      {}

// objectsOf returns a session of a client that wants objects, at a snapshot that has two of one type.
func objectsOf(t *testing.T, f *xdstest.Translator, delta bool) *Session {
	t.Helper()
	l := limits.Default()
	s := &Session{translator: f, observer: quiet{}, limits: &l, differences: &diff.Cache{}, interner: wire.NewInterner(),
		delta: delta, profile: Profile{Whole: true}, proxy: &node.Proxy{ID: "istiod.istio-system", Generator: "api"}}
	if !s.Start(f.Publish(true, "pcds a=1", "pcds b=1")) {
		t.Fatal("not started")
	}
	return s
}

func sizes(s *Session) (out []int) {
	for r := s.Next(); r != nil; r = s.Next() {
		out = append(out, len(r.Resources), len(r.Removed))
	}
	return out
}

func equalInts(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
}

// TestObjectsOverStateOfTheWorld: every type is answered, with nothing too; a response is the whole; objects that
// concern no proxy are sent as well.
func TestObjectsOverStateOfTheWorld(t *testing.T) {
	f := xdstest.NewTranslator()
	s := objectsOf(t, f, false)
	ask := func(url, nonce string) {
		t.Helper()
		if _, err := ask(s, &discoveryv3.DiscoveryRequest{TypeUrl: url, ResponseNonce: nonce}); err != nil {
			t.Fatal(err)
		}
	}
	ask(envoy.ProxyConfigType, "what istiods send at first") // their first nonce is a time
	equalInts(t, "a type", sizes(s), 2, 0)
	ask("nothing/v1/Known", "")
	equalInts(t, "a type of nothing", sizes(s), 0, 0)
	s.Adopt(NewPush(f.Publish(false, "pcds a=2"), time.Time{}))
	equalInts(t, "no objects changed", sizes(s))
	next := f.Publish(false, "pcds b")
	next.Diff.Objects = true
	s.Adopt(NewPush(next, time.Time{}))
	equalInts(t, "an object is gone", sizes(s), 1, 0)
	s.Adopt(NewPush(f.Publish(true, "pcds a"), time.Time{}))
	equalInts(t, "the last is gone", sizes(s), 0, 0)
}

func TestObjectsOverDelta(t *testing.T) {
	f := xdstest.NewTranslator()
	s := objectsOf(t, f, true)
	if _, err := ask(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ProxyConfigType}); err != nil {
		t.Fatal(err)
	}
	equalInts(t, "a type", sizes(s), 2, 0)
	if _, err := ask(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "nothing/v1/Known"}); err != nil {
		t.Fatal(err)
	}
	equalInts(t, "a type of nothing", sizes(s), 0, 0)
	next := f.Publish(false, "pcds b", "pcds a=2")
	next.Diff.Objects = true
	merged := NewPush(next, time.Time{}).Merge(NewPush(f.Publish(false), time.Time{}))
	s.Adopt(merged)
	equalInts(t, "one changed and one is gone", sizes(s), 1, 0, 0, 1)
}

// TestBisectionIsBounded: the memory of a client that rejects everything, and asks for it again each time, is bounded.
func TestBisectionIsBounded(t *testing.T) {
	f := xdstest.NewTranslator()
	snap := f.Publish(true, "eds a=1", "eds b=1", "eds c=1")
	s := newTestSession(f, quiet{}, true)
	s.Start(snap)
	all, nonce := wire.Names{Names: s.interner.Of([]string{"a", "b", "c"})}, ""
	for range 100 {
		q := &wire.Request{Delta: true, Interner: s.interner, Limits: s.limits,
			TypeURL: envoy.EndpointType, Names: all, Nonce: nonce, Detail: &rpcstatus.Status{Code: 3}}
		if _, err := s.Take(q); err != nil {
			t.Fatal(err)
		}
		for x := s.Next(); x != nil; x = s.Next() {
			nonce = x.Nonce
		}
	}
	if n := len(s.find(envoy.EndpointType).bisection); n > 10 {
		t.Errorf("%d parts of three assignments", n)
	}
}
