package session

import (
	"fmt"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// TestOneBadClusterHoldsUpNoOther: what a client that rejects one cluster of many is sent when others change, one after
// the other, costs what changed.
func TestOneBadClusterHoldsUpNoOther(t *testing.T) {
	const n, changes = 200, 50
	f := xdstest.NewTranslator()
	edits := []string{"cds bad=1", "lds l=1"}
	var names []string
	for i := range n {
		edits = append(edits, fmt.Sprintf("cds c%03d=1", i), fmt.Sprintf("eds c%03d=1", i))
		names = append(names, fmt.Sprintf("c%03d", i))
	}
	s := newTestSession(f, quiet{}, true)
	s.limits.NamesPerRequest, s.limits.NamesPerStream = 1000, 1000
	s.Start(f.Publish(true, edits...))
	sent, responses := 0, 0
	serve := func() {
		for x := s.Next(); x != nil; {
			sent += len(x.Resources)
			responses++
			r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: x.TypeURL, ResponseNonce: x.Nonce}
			for _, c := range x.Resources {
				if c.Name == "bad" {
					r.ErrorDetail = &rpcstatus.Status{Code: 13, Message: "bad: no"}
				}
			}
			if _, err := ask(s, r); err != nil {
				t.Fatal(err)
			}
			x = s.Next()
		}
	}
	for _, r := range []*discoveryv3.DeltaDiscoveryRequest{{TypeUrl: envoy.ClusterType},
		{TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: names}, {TypeUrl: envoy.ListenerType}} {
		if _, err := ask(s, r); err != nil {
			t.Fatal(err)
		}
		serve()
	}
	t.Logf("at first: %d resources in %d responses", sent, responses)
	sent, responses = 0, 0
	for i := range changes {
		s.Adopt(NewPush(f.Publish(true, fmt.Sprintf("cds c%03d=2", i)), time.Time{}))
		serve()
	}
	t.Logf("%d clusters changed: %d resources in %d responses", changes, sent, responses)
	if sent > 5*n {
		t.Errorf("%d resources are sent for %d changes", sent, changes)
	}
}
