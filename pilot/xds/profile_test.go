package xds

import (
	"net/netip"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

type quiet struct{}

func (quiet) panicked(string, error) {}
func (quiet) suppressed(string)      {}

// objectsOf returns a session of a client that wants objects, at a snapshot that has two of one type.
func objectsOf(t *testing.T, f *fakeTranslator, delta bool) *session {
	t.Helper()
	l := limits.Default()
	s := &session{translator: f, observer: quiet{}, limits: &l, differences: &differences{}, interner: newNameInterner(), delta: delta, profile: &profile{whole: true}, proxy: &node.Proxy{ID: "istiod.istio-system", Generator: "api"}}
	if !s.start(f.publish(true, "nds a=1", "nds b=1")) {
		t.Fatal("not started")
	}
	return s
}

func sizes(s *session) (out []int) {
	for r := s.next(); r != nil; r = s.next() {
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
	f := newFakeTranslator()
	s := objectsOf(t, f, false)
	ask := func(url, nonce string) {
		t.Helper()
		if _, err := ask(s, &discoveryv3.DiscoveryRequest{TypeUrl: url, ResponseNonce: nonce}); err != nil {
			t.Fatal(err)
		}
	}
	ask(envoy.NameTableType, "what istiods send at first") // their first nonce is a time
	equalInts(t, "a type", sizes(s), 2, 0)
	ask("nothing/v1/Known", "")
	equalInts(t, "a type of nothing", sizes(s), 0, 0)
	s.adopt(newPush(f.publish(false, "nds a=2"), time.Time{}))
	equalInts(t, "no objects changed", sizes(s))
	next := f.publish(false, "nds b")
	next.Diff.Objects = true
	s.adopt(newPush(next, time.Time{}))
	equalInts(t, "an object is gone", sizes(s), 1, 0)
	s.adopt(newPush(f.publish(true, "nds a"), time.Time{}))
	equalInts(t, "the last is gone", sizes(s), 0, 0)
}

func TestObjectsOverDelta(t *testing.T) {
	f := newFakeTranslator()
	s := objectsOf(t, f, true)
	if _, err := ask(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.NameTableType}); err != nil {
		t.Fatal(err)
	}
	equalInts(t, "a type", sizes(s), 2, 0)
	if _, err := ask(s, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "nothing/v1/Known"}); err != nil {
		t.Fatal(err)
	}
	equalInts(t, "a type of nothing", sizes(s), 0, 0)
	next := f.publish(false, "nds b", "nds a=2")
	next.Diff.Objects = true
	merged := newPush(next, time.Time{}).merge(newPush(f.publish(false), time.Time{}))
	s.adopt(merged)
	equalInts(t, "one changed and one is gone", sizes(s), 1, 0, 0, 1)
}

// TestObjectsAreServedToAPIClientsOnly: objects are served only to the addresses that the options name, and by default
// to this host.
func TestObjectsAreServedToAPIClientsOnly(t *testing.T) {
	reader, proxy := &node.Proxy{Generator: "api"}, &node.Proxy{}
	for _, c := range []struct {
		clients []netip.Prefix
		remote  string
		want    codes.Code
	}{
		{nil, "127.0.0.1:5", codes.OK},
		{nil, "[::1]:5", codes.OK},
		{nil, "[::ffff:127.0.0.1]:5", codes.OK},
		{nil, "10.0.0.1:5", codes.PermissionDenied},
		{nil, "", codes.PermissionDenied},
		{nil, "@", codes.PermissionDenied},
		{[]netip.Prefix{}, "127.0.0.1:5", codes.PermissionDenied},
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "10.2.3.4:5", codes.OK},
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "127.0.0.1:5", codes.PermissionDenied},
		{[]netip.Prefix{netip.MustParsePrefix("fe80::/10")}, "[fe80::1%eth0]:5", codes.OK},
	} {
		s := New(Options{APIClients: c.clients})
		if err := s.admit(s.profileOf(reader, true), c.remote); status.Code(err) != c.want {
			t.Errorf("%v, %s: %v", c.clients, c.remote, err)
		}
		if err := s.admit(s.profileOf(proxy, true), c.remote); err != nil {
			t.Errorf("a proxy at %s: %v", c.remote, err)
		}
	}
}
