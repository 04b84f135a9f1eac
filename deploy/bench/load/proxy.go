package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

const (
	service      = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	whole        = service + "StreamAggregatedResources"
	deltaMethod  = service + "DeltaAggregatedResources"
	longestRetry = 30 * time.Second
	// window is how many bytes may be under way, as Istio's agent has it, which is what a control plane talks to.
	window = 1 << 20
)

// proxy is one simulated Envoy.
type proxy struct {
	fleet *Fleet
	index int
	node  *corev3.Node
	begin time.Time // of its first try
	done  bool      // it has had a full configuration once
}

// run connects, and does so again with Envoy's pauses, until ctx ends.
func (p *proxy) run(ctx context.Context) {
	p.begin = time.Now()
	pause := p.fleet.o.Retry
	for {
		err := p.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		p.fleet.ended(p.index, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(rand.N(pause) + 1):
		}
		pause = min(2*pause, longestRetry)
	}
}

func (p *proxy) connect(ctx context.Context) error {
	conn, err := grpc.NewClient("passthrough:///"+p.fleet.o.Address, grpc.WithTransportCredentials(p.fleet.o.Credentials),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(1<<30)), grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	method := deltaMethod
	if p.fleet.o.StateOfTheWorld {
		method = whole
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return fmt.Errorf("open a stream: %w", err)
	}
	return newSession(p, stream).serve()
}

// session is one stream of a proxy.
type session struct {
	*proxy
	stream grpc.ClientStream
	// wants are the subscriptions to types that other resources name.
	wants     [types]*subscription
	last      [types]response // version and nonce alone
	got       [types]bool
	nodeSent  bool
	listening bool // listeners were asked for
}

func newSession(p *proxy, stream grpc.ClientStream) *session {
	return &session{proxy: p, stream: stream, wants: [types]*subscription{Endpoints: newSubscription(), Routes: newSubscription()}}
}

// serve subscribes to clusters, and to the rest as Envoy does: assignments as clusters name them, listeners once all assignments have come, routes as
// listeners name them.
func (s *session) serve() error {
	if err := s.send(Clusters, nil, nil); err != nil {
		return err
	}
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
	r, err := parse(message, !s.fleet.o.StateOfTheWorld)
	if err != nil {
		return err
	}
	s.fleet.received(s.index, r, len(message), at)
	s.got[r.kind], s.last[r.kind] = true, response{version: r.version, nonce: r.nonce}
	if err := s.send(r.kind, nil, nil); err != nil { // the acknowledgement
		return err
	}
	switch r.kind {
	case Clusters:
		err = s.follow(r, Endpoints)
	case Listeners:
		err = s.follow(r, Routes)
	default:
		s.wants[r.kind].answer(r)
	}
	if err != nil {
		return err
	}
	if !s.listening && s.got[Clusters] && len(s.wants[Endpoints].awaited) == 0 {
		s.listening = true
		if err := s.send(Listeners, nil, nil); err != nil {
			return err
		}
	}
	if !s.done && s.got[Listeners] && len(s.wants[Endpoints].awaited)+len(s.wants[Routes].awaited) == 0 {
		s.done = true
		s.fleet.synced(at.Sub(s.begin))
	}
	return nil
}

// follow subscribes to what a response names and leaves what is named no more.
func (s *session) follow(r response, kind Type) error {
	added, gone := s.wants[kind].update(r, s.fleet.o.StateOfTheWorld)
	if len(added)+len(gone) == 0 {
		return nil
	}
	slices.Sort(added)
	return s.send(kind, added, gone)
}

// send sends a request: with names it subscribes, without it acknowledges what came last, or asks for all.
func (s *session) send(kind Type, added, gone []string) error {
	node := s.node
	if s.nodeSent {
		node = nil
	}
	s.nodeSent = true
	var request proto.Message
	last := s.last[kind]
	if s.fleet.o.StateOfTheWorld {
		whole := &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: typeURLs[kind], VersionInfo: last.version, ResponseNonce: last.nonce}
		if want := s.wants[kind]; want != nil {
			for name := range want.count {
				whole.ResourceNames = append(whole.ResourceNames, name)
			}
			slices.Sort(whole.ResourceNames)
		}
		request = whole
	} else {
		delta := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typeURLs[kind], ResourceNamesSubscribe: added, ResourceNamesUnsubscribe: gone}
		if len(added)+len(gone) == 0 {
			delta.ResponseNonce = last.nonce
		}
		request = delta
	}
	if err := s.stream.SendMsg(request); err != nil {
		return errors.Join(fmt.Errorf("send: %w", err), s.stream.RecvMsg(new(mem.Buffer))) // the latter says why
	}
	return nil
}
