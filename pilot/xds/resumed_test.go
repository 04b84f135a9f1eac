package xds

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// TestGoneClustersAreRemovedFromLateResumer: a client that resumes long after it connected has the clusters removed
// that are gone.
func TestGoneClustersAreRemovedFromLateResumer(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "nds n=1")
	c := r.silent()
	c.send(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("web.a"), TypeUrl: envoy.NameTableType})
	c.expect("nds n=1")
	of := r.server.streams()[0]
	if !of.call(t.Context(), func(*session.Session) { of.began = of.began.Add(-time.Minute) }) {
		t.Fatal("gone")
	}
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, InitialResourceVersions: map[string]string{"a": "1", "gone": "1"}})
	m := c.expect("cds")
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, ResponseNonce: m.Nonce})
	c.expect("cds -gone")
}

// TestClustersStayUntilResumerHasAnswered: a client that resumes keeps clusters that are gone until it has answered its
// clusters, however late the server reads its requests. Then they are removed, though it asks for nothing more.
func TestClustersStayUntilResumerHasAnswered(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "lds l=1")
	c := r.resumed("web.a", map[string]string{"a": "1", "gone": "1"})
	clusters := c.expect("cds")
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ListenerType, InitialResourceVersions: map[string]string{"l": "1", "old": "1"}})
	c.expect("lds -old")
	of := r.server.streams()[0]
	owned := func(fn func(*session.Session)) {
		t.Helper()
		if !of.call(t.Context(), fn) {
			t.Fatal("the stream has ended")
		}
	}
	owned(func(*session.Session) { of.deadlines.set(resumed, time.Now()) })
	eventually(t, "the client is taken for quiet", func() (over bool) {
		owned(func(*session.Session) { over = !of.deadlines.waits(resumed) })
		return over
	})
	owned(func(s *session.Session) {
		if !s.Resuming() {
			t.Error("clusters may be removed, though requests of the client may not have been read")
		}
	})
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, ResponseNonce: clusters.Nonce})
	eventually(t, "the answer is read", func() (read bool) {
		owned(func(s *session.Session) { read = s.StatusOf(envoy.ClusterType).Acked != "" })
		return read
	})
	owned(func(s *session.Session) {
		if s.Resuming() && !of.deadlines.waits(resumed) {
			t.Fatal("the client keeps a cluster that is gone until it asks for something")
		}
	})
	c.expect("cds -gone")
}
