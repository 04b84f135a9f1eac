package xds

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// FuzzDiscoveryRequest has two requests of whatever bytes reach a session of either protocol, with snapshots between:
// it may refuse them, and always comes to rest with its books in order.
func FuzzDiscoveryRequest(f *testing.F) {
	seed := func(a, b proto.Message) {
		x, err := proto.Marshal(a)
		if err != nil {
			f.Fatal(err)
		}
		y, err := proto.Marshal(b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(x, y)
	}
	for _, t := range []string{envoy.ClusterType, envoy.EndpointType, "what.Ever", ""} {
		seed(&discoveryv3.DiscoveryRequest{Node: testNode("web.a"), TypeUrl: t, ResourceNames: []string{"a", star}},
			&discoveryv3.DiscoveryRequest{TypeUrl: t, ResponseNonce: "1", ErrorDetail: &rpcstatus.Status{Code: 99, Message: "a"}})
		seed(&discoveryv3.DeltaDiscoveryRequest{Node: testNode("web.a"), TypeUrl: t, ResourceNamesSubscribe: []string{"a", star}, InitialResourceVersions: map[string]string{"a": "1", "z": "2"}},
			&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t, ResponseNonce: "1", ResourceNamesUnsubscribe: []string{star, "a"}, ResourceNamesSubscribe: []string{"b"}})
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		for _, delta := range []bool{false, true} {
			fake := newFakeTranslator()
			s, names := newTestSession(fake, fuzzObserver{t}, delta), &recent{}
			s.start(fake.publish(true, "cds a=1", "cds in=1", "eds a=1", "lds l=1", "rds r=1"))
			drain := func() {
				for i := 0; s.next() != nil; i++ {
					if i > 100 {
						t.Fatal("the session never comes to rest")
					}
				}
			}
			for i, b := range [][]byte{first, second, first} {
				r := &request{delta: delta, interner: s.interner, limits: s.limits, recent: names}
				if r.decode(&rawRequest{}, b) != nil {
					return
				}
				_, _ = node.Parse(r.node) // an error is an answer
				var err error
				if delta {
					_, err = s.incremental(r)
				} else {
					_, err = s.stateOfTheWorld(r)
				}
				if err != nil {
					return
				}
				if i > 0 {
					drain()
				}
				s.adopt(newPush(fake.publish(i == 1, "cds a", "cds b=2", "eds a=2", "rds r=2"), time.Unix(0, 0)))
				s.quiet()
				drain()
				n := 0
				for _, w := range s.watches {
					n += w.names.Len()
				}
				if n != s.names {
					t.Fatalf("%d names are subscribed to, %d are counted", n, s.names)
				}
			}
		}
	})
}

type fuzzObserver struct{ t *testing.T }

func (o fuzzObserver) panicked(_ string, err error) { o.t.Fatal(err) }
func (fuzzObserver) suppressed(string)              {}
