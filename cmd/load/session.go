package load

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// session is one stream of a proxy.
type session struct {
	*proxy
	stream   grpc.ClientStream
	nonce    [types]string
	nodeSent bool
	sent     [types]time.Time // when the unanswered requests were sent
	// resumed holds the types whose first request named what the proxy holds, and which had no response yet.
	resumed [types]bool
}

// resume subscribes to everything that the last stream had subscribed to, in Envoy's order, and names what the proxy
// holds. A stalled proxy does so as if it held nothing. The first stream asks for clusters.
func (s *session) resume() error {
	s.asked[Clusters] = true
	for t := range types {
		if !s.asked[t] {
			continue
		}
		var names []string
		if s.wants[t] != nil {
			names = slices.Sorted(maps.Keys(s.wants[t].count))
			if len(names) == 0 { // without names it would subscribe to all
				continue
			}
		}
		if err := s.send(subscribe{kind: t, added: names, first: true}); err != nil {
			return err
		}
	}
	return s.proceed(time.Now())
}

// serve reads responses until the stream ends.
func (s *session) serve() error {
	for {
		var buffer mem.Buffer
		if err := s.stream.RecvMsg(&buffer); err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		err := s.take(buffer.ReadOnlyData(), time.Now())
		buffer.Free()
		if err != nil {
			return err
		}
	}
}

func (s *session) take(message []byte, at time.Time) error {
	whole := s.fleet.o.StateOfTheWorld
	r, err := parse(message, !whole, s.fleet.names.one)
	if err != nil {
		return err
	}
	s.bytes.Add(int64(len(message)))
	s.fleet.received(s.index, r, message, at)
	switch asked := s.sent[r.kind]; {
	case s.resumed[r.kind]:
	case !asked.IsZero():
		s.fleet.pushes[r.kind].answered(at.Sub(asked))
	default:
		s.fleet.pushes[r.kind].pushed(s.index, r.version, at)
	}
	s.sent[r.kind], s.resumed[r.kind] = time.Time{}, false
	s.got[r.kind], s.version[r.kind], s.nonce[r.kind] = true, r.version, r.nonce
	if !whole {
		s.hold(r)
	}
	// What the response changes is recorded before anything is sent: if the stream ends now, the next one goes on from
	// there.
	var next []subscribe
	switch r.kind {
	case Clusters:
		next = s.follow(r, Endpoints)
	case Listeners:
		next = append(s.follow(r, Routes), s.follow(r, Secrets)...)
	case Endpoints, Routes, Secrets:
		s.wants[r.kind].answer(r)
	}
	if r.kind == Routes && !whole && !s.asked[VirtualHosts] && slices.ContainsFunc(r.resources, resource.usesVHDS) {
		s.asked[VirtualHosts] = true
		next = append(next, subscribe{kind: VirtualHosts, first: true})
	}
	acknowledge := subscribe{kind: r.kind}
	for _, x := range append([]subscribe{acknowledge}, next...) {
		if err := s.send(x); err != nil {
			return err
		}
	}
	return s.proceed(at)
}

func (s *session) hold(r response) {
	held := s.held[r.kind]
	if len(held) == 0 {
		held = make(map[string]string, len(r.resources))
		s.held[r.kind] = held
	}
	for _, x := range r.resources {
		held[x.name] = x.version
	}
	for _, name := range r.removed {
		delete(held, name)
	}
}

// proceed asks for listeners once all assignments have arrived. It records the time when the proxy has everything.
func (s *session) proceed(at time.Time) error {
	if !s.got[Clusters] || len(s.wants[Endpoints].awaited) > 0 {
		return nil
	}
	if !s.asked[Listeners] {
		s.asked[Listeners] = true
		return s.send(subscribe{kind: Listeners, first: true})
	}
	if !s.done && s.got[Listeners] && len(s.wants[Routes].awaited)+len(s.wants[Secrets].awaited) == 0 &&
		s.asked[VirtualHosts] == s.got[VirtualHosts] {
		s.done = true
		s.fleet.synced(at.Sub(s.begin))
	}
	return nil
}

// subscribe is a request: with names it subscribes, and without names it acknowledges the last response, or asks for
// all resources.
type subscribe struct {
	kind        Type
	added, gone []string
	first       bool // the first of its type on the stream, which names what the proxy holds
}

// follow returns the request that subscribes to the resources that a response names, and unsubscribes from resources
// that are no longer named. It returns nil if nothing changes.
func (s *session) follow(r response, kind Type) []subscribe {
	added, gone := s.wants[kind].update(r, s.fleet.o.StateOfTheWorld)
	if len(added)+len(gone) == 0 {
		return nil
	}
	first := !s.asked[kind]
	s.asked[kind] = true
	for _, name := range gone {
		delete(s.held[kind], name)
	}
	slices.Sort(added)
	return []subscribe{{kind, added, gone, first}}
}

// send sends a request.
func (s *session) send(x subscribe) error {
	node := s.node
	if s.nodeSent {
		node = nil
	}
	s.nodeSent = true
	if x.first || len(x.added) > 0 {
		s.sent[x.kind] = time.Now()
	}
	var request proto.Message
	if s.fleet.o.StateOfTheWorld {
		whole := &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: typeURLs[x.kind], ResponseNonce: s.nonce[x.kind]}
		if !s.stalled {
			whole.VersionInfo = s.version[x.kind]
		}
		if want := s.wants[x.kind]; want != nil {
			whole.ResourceNames = slices.Sorted(maps.Keys(want.count))
		}
		request = whole
	} else {
		delta := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typeURLs[x.kind], ResourceNamesSubscribe: x.added,
			ResourceNamesUnsubscribe: x.gone}
		switch {
		case x.first && !s.stalled:
			delta.InitialResourceVersions = s.held[x.kind]
			s.resumed[x.kind] = len(s.held[x.kind]) > 0
		case !x.first && len(x.added)+len(x.gone) == 0:
			delta.ResponseNonce = s.nonce[x.kind]
		}
		request = delta
	}
	if err := s.stream.SendMsg(request); err != nil {
		return errors.Join(fmt.Errorf("send: %w", err), s.stream.RecvMsg(new(mem.Buffer))) // RecvMsg returns the cause
	}
	return nil
}
