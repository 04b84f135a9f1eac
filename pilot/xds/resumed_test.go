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
	if !of.ask(t.Context(), func(*session.Session) { of.connected = of.connected.Add(-time.Minute) }) {
		t.Fatal("gone")
	}
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, InitialResourceVersions: map[string]string{"a": "1", "gone": "1"}})
	removed := make(chan string, 8)
	go func() {
		for {
			m, err := c.stream.Recv()
			if err != nil {
				return
			}
			for _, n := range m.RemovedResources {
				removed <- n
			}
		}
	}()
	select {
	case <-removed:
	case <-time.After(time.Minute): // it would keep it for ever
		t.Error("the client still has a cluster that is gone")
	}
	_ = c.stream.CloseSend()
}
