package xds

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestRejectedIsShown: a proxy that has rejected what it should have is shown to reject, though it has acknowledged all
// else; and no longer once it has all.
func TestRejectedIsShown(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "cds bad=1", "cds c=1", "lds bad=1", "lds l=1", "lds m=1")
	c := r.delta("web.a")
	answer := func(m *discoveryv3.DeltaDiscoveryResponse, said string) {
		q := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce}
		if said != "" {
			q.ErrorDetail = &rpcstatus.Status{Code: 13, Message: said}
		}
		c.send(q)
	}
	shown := func(what, clusters, listeners string) {
		eventually(t, what, func() bool {
			all := r.server.Clients()
			if len(all) != 1 {
				return false
			}
			cds, lds := all[0].Types[envoy.ClusterType], all[0].Types[envoy.ListenerType]
			return cds.LastError == clusters && cds.Sent == cds.Acked && lds.LastError == listeners && lds.Sent == lds.Acked
		})
	}
	// Envoy says which clusters it does not take: the others alone are sent again.
	const why = "Error adding/updating cluster(s) bad: no"
	answer(c.expect("cds a=1 bad=1 c=1"), why)
	answer(c.expect("cds a=1 c=1"), "")
	c.subscribe("lds")
	answer(c.expect("lds bad=1 l=1 m=1"), "something is wrong") // it does not say what
	answer(c.expect("lds bad=1"), "no listener")
	answer(c.expect("lds l=1 m=1"), "")
	shown("it rejects two resources, and has all others", "Internal: "+why, "Internal: no listener")

	r.publish(true, "cds c=2", "lds l=2")
	answer(c.expect("cds c=2"), "")
	answer(c.expect("lds l=2"), "")
	shown("it still rejects them when others have changed", "Internal: "+why, "Internal: no listener")

	r.publish(true, "cds bad=2")
	answer(c.expect("cds bad=2"), "")
	shown("it takes the cluster that has changed", "", "Internal: no listener")
	// What it takes first says nothing of what it is still asked.
	r.publish(true, "lds a=1", "lds bad=2")
	answer(c.expect("lds a=1 bad=2"), "something is wrong")
	answer(c.expect("lds a=1"), "")
	asked := c.expect("lds bad=2")
	if all := r.server.Clients(); len(all) != 1 || all[0].Types[envoy.ListenerType].LastError == "" {
		t.Error("it is shown to be well while half of what it rejected is still asked of it")
	}
	answer(asked, "no listener")
	r.publish(true, "lds bad")
	answer(c.expect("lds -bad"), "")
	shown("it has no listener to reject any more", "", "")

	// What it has rejected comes again in the same version.
	r.publish(true, "lds bad=2", "lds l=3")
	answer(c.expect("lds l=3"), "")
	shown("it lacks the listener that it rejected, which has come again", "", "Internal: no listener")
	r.publish(true, "cds bad=1", "cds c=3")
	answer(c.expect("cds c=3"), "")
	shown("it lacks the version that its cluster has again", "Internal: "+why, "Internal: no listener")
	r.publish(true, "cds bad=3", "lds bad=3")
	answer(c.expect("cds bad=3"), "")
	answer(c.expect("lds bad=3"), "")
	shown("it takes the next versions", "", "")
}
