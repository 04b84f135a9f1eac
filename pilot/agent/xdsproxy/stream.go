package xdsproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// stream is one stream of Envoy's and the corresponding stream to the control plane.
type stream struct {
	p     *Proxy
	delta bool
	// debug restricts the stream to debug pages, for tools.
	debug    bool
	envoy    grpc.ServerStream
	upstream grpc.ClientStream
	ctx      context.Context
	cancel   context.CancelCauseFunc

	toEnvoy    chan mem.BufferSlice // responses, for the goroutine that sends to Envoy
	toUpstream chan mem.BufferSlice // Envoy's requests, for the goroutine that sends upstream
	extensions chan *response       // responses with extensions, for the goroutine that fetches them

	mu sync.Mutex
	// requests are the agent's own requests that are to be sent, at most one of each type.
	requests []typed
	wake     chan struct{} // has an element while there are requests
	// subscribed is set when Envoy has requested listeners and the agent has sent its own subscriptions.
	subscribed bool
	// versions has the last accepted version of each type of Handlers.
	versions map[string]string
	// names are the names of extensions that Envoy requested last, for rejections on its behalf.
	names []string
	// nonce is the nonce of an extension response that the agent rejected and Envoy has not seen. It is empty if Envoy
	// has the latest response.
	nonce string
}

// typed is a request of either protocol.
type typed interface {
	proto.Message
	GetTypeUrl() string
}

// ended is the error of a stream that one side has ended.
type ended struct {
	by  string
	err error
}

func (e *ended) Error() string { return fmt.Sprintf("%s ended the stream: %v", e.by, e.err) }

const (
	byEnvoy    = "Envoy"
	byUpstream = "the control plane"
)

// serve connects a stream of Envoy's with the control plane until either side ends it. The error has the gRPC status
// for Envoy.
func (p *Proxy) serve(envoy grpc.ServerStream, delta, debug bool) error {
	ctx, cancel := context.WithCancelCause(envoy.Context())
	defer cancel(nil)
	s := &stream{
		p: p, delta: delta, debug: debug, envoy: envoy, ctx: ctx, cancel: cancel,
		toEnvoy: make(chan mem.BufferSlice), toUpstream: make(chan mem.BufferSlice),
		extensions: make(chan *response, 8), wake: make(chan struct{}, 1), versions: map[string]string{},
	}
	method := sotwMethod
	if delta {
		method = deltaMethod
	}
	var err error
	s.upstream, err = p.o.Upstream.Conn().NewStream(p.o.Upstream.Context(ctx),
		&grpc.StreamDesc{StreamName: method, ClientStreams: true, ServerStreams: true},
		"/"+discoveryv3.AggregatedDiscoveryService_ServiceDesc.ServiceName+"/"+method, grpc.ForceCodecV2(newCodec()))
	if err != nil {
		p.metrics.failures.Inc()
		if n := p.openFailures.Add(1); n&(n-1) == 0 { // logged for the first, second, fourth and so on
			p.o.Log.Warn("failed to open a stream to the control plane", "server", p.o.Upstream.Address(), "err", err, "failures", n)
		}
		return statusFor(err)
	}
	if n := p.openFailures.Swap(0); n > 0 {
		p.o.Log.Info("reconnected to the control plane", "server", p.o.Upstream.Address(), "failures", n)
	}
	p.add(s)
	defer p.remove(s)

	var running sync.WaitGroup
	start := func(name string, fn func() error) {
		running.Add(1)
		safe.Go(p.o.Log, name, func() {
			defer running.Done()
			defer cancel(errors.New("internal error")) // after a panic; the first cause wins
			cancel(fn())
		})
	}
	start("xds from upstream", s.fromUpstream)
	start("xds to upstream", s.sendUpstream)
	if p.o.Extensions != nil && !debug {
		start("xds extensions", s.fetch)
	}
	// Recv returns only after this handler has, so serve does not wait for this goroutine.
	safe.Go(p.o.Log, "xds from envoy", func() {
		defer cancel(errors.New("internal error")) // after a panic
		cancel(s.fromEnvoy())
	})
	err = s.sendEnvoy()
	cancel(err)
	running.Wait()

	cause := &ended{}
	if errors.As(context.Cause(ctx), &cause) && cause.by == byUpstream && envoy.Context().Err() == nil {
		p.metrics.upstreamEnds.Inc()
		p.o.Log.Info("the control plane ended a stream: Envoy reconnects", "server", p.o.Upstream.Address(), "err", cause.err)
		return statusFor(cause.err)
	}
	if cause.by == "" && envoy.Context().Err() == nil {
		return status.Error(codes.Internal, "internal error of the agent")
	}
	p.metrics.envoyEnds.Inc()
	p.o.Log.Debug("Envoy ended a stream", "err", cause.err)
	if errors.Is(cause.err, io.EOF) {
		return nil
	}
	return cause.err
}

// statusFor returns the error for Envoy's stream when the control plane has ended its own: the same status, or
// Unavailable if the stream ended without an error.
func statusFor(err error) error {
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the control plane ended the stream")
	}
	return status.Convert(err).Err()
}

// fromEnvoy receives Envoy's requests.
func (s *stream) fromEnvoy() error {
	field := protowire.Number(sotwTypeURL)
	if s.delta {
		field = deltaTypeURL
	}
	for {
		var m mem.BufferSlice
		if err := s.envoy.RecvMsg(&m); err != nil {
			return &ended{byEnvoy, err}
		}
		typeURL, err := typeOf(m, field)
		if err != nil {
			m.Free()
			return &ended{byEnvoy, err}
		}
		if s.debug && !strings.HasPrefix(typeURL, debugType) {
			m.Free()
			return &ended{byEnvoy, status.Errorf(codes.PermissionDenied, "this port serves only debug pages, with the types %s*", debugType)}
		}
		if typeURL == extensionType && !s.delta && s.p.o.Extensions != nil {
			m = s.recordNames(m)
		}
		select {
		case s.toUpstream <- m:
		case <-s.ctx.Done():
			m.Free()
			return nil
		}
		s.p.metrics.requests.Inc()
		if typeURL == listenerType {
			s.subscribe()
		}
	}
}

// recordNames records the names in a state-of-the-world request, and returns the request. If the agent has rejected a
// response on Envoy's behalf, the request gets the nonce of that response, because servers ignore requests with an
// older one.
func (s *stream) recordNames(m mem.BufferSlice) mem.BufferSlice {
	r := &discoveryv3.DiscoveryRequest{}
	if proto.Unmarshal(m.Materialize(), r) != nil {
		return m
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = r.GetResourceNames()
	if s.nonce == "" {
		return m
	}
	r.ResponseNonce = s.nonce
	encoded, err := encode(r)
	if err != nil {
		return m
	}
	m.Free()
	return encoded
}

// subscribe sends the agent's own subscriptions, once. Envoy's first request, which contains its node, was sent
// before.
func (s *stream) subscribe() {
	s.mu.Lock()
	first := !s.subscribed
	s.subscribed = true
	s.mu.Unlock()
	if !first {
		return
	}
	for typeURL := range s.p.o.Handlers {
		if s.delta {
			s.request(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL})
		} else {
			s.request(&discoveryv3.DiscoveryRequest{TypeUrl: typeURL})
		}
	}
	s.reportHealth()
}

// reportHealth sends the application's health if the agent has subscribed.
func (s *stream) reportHealth() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.subscribed {
		return
	}
	s.enqueue(&discoveryv3.DiscoveryRequest{TypeUrl: healthType}) // sendUpstream fills it in
}

// request sends a request of the agent's own. It replaces an earlier one of its type that was not sent yet.
func (s *stream) request(m typed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueue(m)
}

func (s *stream) enqueue(m typed) {
	s.requests = append(slices.DeleteFunc(s.requests, func(x typed) bool { return x.GetTypeUrl() == m.GetTypeUrl() }), m)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// healthRequest returns the report of the current health, or nil.
func (s *stream) healthRequest() typed {
	h := s.p.lastHealth()
	if h == nil {
		return nil
	}
	var detail *rpcstatus.Status
	if !h.healthy {
		detail = &rpcstatus.Status{Code: int32(codes.Internal), Message: h.message}
	}
	if s.delta {
		return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: healthType, ErrorDetail: detail}
	}
	return &discoveryv3.DiscoveryRequest{TypeUrl: healthType, ErrorDetail: detail}
}

// sendUpstream sends Envoy's requests and the agent's own.
func (s *stream) sendUpstream() error {
	send := func(m any) error {
		// After io.EOF, RecvMsg returns the error.
		if err := s.upstream.SendMsg(m); err != nil && !errors.Is(err, io.EOF) {
			return &ended{byUpstream, err}
		}
		return nil
	}
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case m := <-s.toUpstream:
			if err := send(m); err != nil {
				return err
			}
		case <-s.wake:
			s.mu.Lock()
			requests := s.requests
			s.requests = nil
			s.mu.Unlock()
			for _, m := range requests {
				if m.GetTypeUrl() == healthType {
					if m = s.healthRequest(); m == nil {
						continue
					}
				}
				if err := send(m); err != nil {
					return err
				}
			}
		}
	}
}

// fromUpstream receives responses.
func (s *stream) fromUpstream() error {
	for {
		var m mem.BufferSlice
		if err := s.upstream.RecvMsg(&m); err != nil {
			return &ended{byUpstream, err}
		}
		s.p.metrics.responses.Inc()
		typeURL, err := typeOf(m, sotwTypeURL)
		if err != nil {
			m.Free()
			return &ended{byUpstream, status.Error(codes.Internal, "the control plane sent a malformed response")}
		}
		handler := s.p.o.Handlers[typeURL]
		fetched := typeURL == extensionType && s.p.o.Extensions != nil
		if handler == nil && !fetched {
			select {
			case s.toEnvoy <- m:
				continue
			case <-s.ctx.Done():
				m.Free()
				return nil
			}
		}
		r, err := decode(m, s.delta)
		if err != nil {
			return &ended{byUpstream, status.Error(codes.Internal, err.Error())}
		}
		if handler != nil {
			s.handle(r, handler)
			continue
		}
		select {
		case s.extensions <- r:
		case <-s.ctx.Done():
			return nil
		}
	}
}

// handle passes a response to its handler, and acknowledges or rejects it.
func (s *stream) handle(r *response, handler func([]byte) error) {
	var err error
	for _, a := range r.resources {
		panicked := safe.Do("xds handler", func() { err = handler(a.GetValue()) })
		if err = errors.Join(err, panicked); err != nil {
			s.p.o.Log.Warn("rejected a response of the control plane", "type", r.typeURL, "err", err)
			break
		}
	}
	s.mu.Lock()
	if err == nil && r.sotw != nil {
		s.versions[r.typeURL] = r.sotw.GetVersionInfo()
	}
	version := s.versions[r.typeURL]
	s.mu.Unlock()
	s.request(r.reply(version, nil, err))
}

// sendEnvoy sends responses to Envoy.
func (s *stream) sendEnvoy() error {
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case m := <-s.toEnvoy:
			if err := s.envoy.SendMsg(m); err != nil {
				return &ended{byEnvoy, err}
			}
		}
	}
}
