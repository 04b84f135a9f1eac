package session

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
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
		seed(&discoveryv3.DiscoveryRequest{Node: xdstest.Node("web.a"), TypeUrl: t, ResourceNames: []string{"a", wire.Star}},
			&discoveryv3.DiscoveryRequest{TypeUrl: t, ResponseNonce: "1", ErrorDetail: &rpcstatus.Status{Code: 99, Message: "a"}})
		seed(&discoveryv3.DeltaDiscoveryRequest{Node: xdstest.Node("web.a"), TypeUrl: t,
			ResourceNamesSubscribe: []string{"a", wire.Star}, InitialResourceVersions: map[string]string{"a": "1", "z": "2"}},
			&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t, ResponseNonce: "1",
				ResourceNamesUnsubscribe: []string{wire.Star, "a"}, ResourceNamesSubscribe: []string{"b"}})
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		for _, delta := range []bool{false, true} {
			fake := xdstest.NewTranslator()
			s, names := newTestSession(fake, fuzzObserver{t}, delta), &wire.Recent{}
			s.Start(fake.Publish(true, "cds a=1", "cds in=1", "eds a=1", "lds l=1", "rds r=1"))
			drain := func() {
				for i := 0; s.Next() != nil; i++ {
					if i > 100 {
						t.Fatal("the session never comes to rest")
					}
				}
			}
			for i, b := range [][]byte{first, second, first} {
				r := &wire.Request{Delta: delta, Interner: s.interner, Limits: s.limits, Recent: names}
				if r.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}) != nil {
					return
				}
				_, _ = node.Parse(r.Node) // an error is an answer
				if _, err := s.Take(r); err != nil {
					return
				}
				if i > 0 {
					drain()
				}
				s.Adopt(NewPush(fake.Publish(i == 1, "cds a", "cds b=2", "eds a=2", "rds r=2"), time.Unix(0, 0)))
				s.EndResuming()
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

func (fuzzObserver) StandIn(string) *envoy.Resource { return nil }

func (fuzzObserver) MayHave(string) bool { return true }

func (o fuzzObserver) Panicked(_ string, err error) { o.t.Fatal(err) }
func (fuzzObserver) Suppressed(string)              {}
