package session

import (
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// ask has a session take a request as it would come.
func ask(s *Session, m proto.Message, names ...*wire.Recent) (Verdict, error) {
	_, delta := m.(*discoveryv3.DeltaDiscoveryRequest)
	r := &wire.Request{Delta: delta, Interner: s.interner, Limits: s.limits, Recent: slices.Concat(names, []*wire.Recent{{}})[0]}
	b, err := proto.Marshal(m)
	if err != nil {
		return Verdict{}, err
	}
	if err := r.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}); err != nil {
		return Verdict{}, err
	}
	return s.Take(r)
}
