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

// stream is one stream of Envoy's and the one to the control plane that belongs to it.
type stream struct {
	p     *Proxy
	delta bool
	debug bool // debug pages only, of a tool
	envoy grpc.ServerStream
	up    grpc.ClientStream
	ctx   context.Context
	end   context.CancelCauseFunc

	toEnvoy    chan mem.BufferSlice // to the goroutine that sends to Envoy
	toUpstream chan mem.BufferSlice // from Envoy, to the goroutine that sends upstream
	extensions chan *response       // to the goroutine that has extensions fetched

	mu      sync.Mutex
	own     []typed       // requests of the agent's own: one at most of each type, the latest
	wake    chan struct{} // has one entry while own has any
	started bool          // Envoy has asked for listeners, so the agent asks for what it needs
	// the version of each type of Handlers that was accepted last
	versions map[string]string
	// the names of extensions that Envoy asked for last, for rejections in its stead
	names []string
	// the nonce of extensions that were rejected in Envoy's stead, which has not seen it; empty: Envoy has the latest
	nonce string
}

// typed is a request of either protocol.
type typed interface {
	proto.Message
	GetTypeUrl() string
}

// ended is why a stream ended: by which side.
type ended struct {
	by  string
	err error
}

func (e *ended) Error() string { return fmt.Sprintf("%s ended the stream: %v", e.by, e.err) }

const (
	byEnvoy    = "Envoy"
	byUpstream = "the control plane"
)

// serve passes a stream of Envoy's on until either side ends it. It returns what Envoy is told.
func (p *Proxy) serve(envoy grpc.ServerStream, delta, debug bool) error {
	ctx, end := context.WithCancelCause(envoy.Context())
	defer end(nil)
	s := &stream{
		p: p, delta: delta, debug: debug, envoy: envoy, ctx: ctx, end: end, toEnvoy: make(chan mem.BufferSlice), toUpstream: make(chan mem.BufferSlice),
		extensions: make(chan *response, 8), wake: make(chan struct{}, 1), versions: map[string]string{},
	}
	method := sotwMethod
	if delta {
		method = deltaMethod
	}
	var err error
	s.up, err = p.o.Upstream.Conn().NewStream(p.o.Upstream.Context(ctx), &grpc.StreamDesc{StreamName: method, ClientStreams: true, ServerStreams: true},
		"/"+discoveryv3.AggregatedDiscoveryService_ServiceDesc.ServiceName+"/"+method, grpc.ForceCodecV2(newCodec()))
	if err != nil {
		p.metrics.failures.Inc()
		if n := p.away.Add(1); n&(n-1) == 0 { // the first, the second, the fourth
			p.o.Log.Warn("no stream to the control plane", "server", p.o.Upstream.Address(), "err", err, "failures", n)
		}
		return told(err)
	}
	if n := p.away.Swap(0); n > 0 {
		p.o.Log.Info("there is a stream to the control plane again", "server", p.o.Upstream.Address(), "failures", n)
	}
	p.add(s)
	defer p.remove(s)

	var running sync.WaitGroup
	start := func(name string, fn func() error) {
		running.Add(1)
		safe.Go(p.o.Log, name, func() {
			defer running.Done()
			defer end(errors.New("internal error")) // of a panic: the first cause counts
			end(fn())
		})
	}
	start("xds from upstream", s.fromUpstream)
	start("xds to upstream", s.sendUpstream)
	if p.o.Extensions != nil && !debug {
		start("xds extensions", s.fetch)
	}
	// Recv of Envoy's stream ends only when this handler has: nobody waits for it.
	safe.Go(p.o.Log, "xds from envoy", func() {
		defer end(errors.New("internal error")) // as above
		end(s.fromEnvoy())
	})
	err = s.sendEnvoy()
	end(err)
	running.Wait()

	cause := &ended{}
	if errors.As(context.Cause(ctx), &cause) && cause.by == byUpstream && envoy.Context().Err() == nil {
		p.metrics.upstreamEnds.Inc()
		p.o.Log.Info("the control plane has ended the stream: Envoy connects again", "server", p.o.Upstream.Address(), "err", cause.err)
		return told(cause.err)
	}
	if cause.by == "" && envoy.Context().Err() == nil {
		return status.Error(codes.Internal, "internal error of the agent")
	}
	p.metrics.envoyEnds.Inc()
	p.o.Log.Debug("Envoy has ended its stream", "err", cause.err)
	if errors.Is(cause.err, io.EOF) {
		return nil
	}
	return cause.err
}

// told returns what Envoy is told when the control plane ends a stream: the same, and Unavailable for a plain end.
func told(err error) error {
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the control plane has ended the stream")
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
			return &ended{byEnvoy, status.Errorf(codes.PermissionDenied, "this port has debug pages only, of the types %s*", debugType)}
		}
		if typeURL == extensionType && !s.delta && s.p.o.Extensions != nil {
			m = s.remember(m)
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

// remember keeps the names of a state-of-the-world request, and returns the request. Once a response was rejected in
// Envoy's stead, the request gets its nonce: servers leave requests with an older one unanswered.
func (s *stream) remember(m mem.BufferSlice) mem.BufferSlice {
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
	changed, err := encode(r)
	if err != nil {
		return m
	}
	m.Free()
	return changed
}

// subscribe asks for what the agent needs itself, once. Envoy's first request, which names its node, has been sent.
func (s *stream) subscribe() {
	s.mu.Lock()
	first := !s.started
	s.started = true
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

// reportHealth sends what is known of the application's health, if the stream has begun.
func (s *stream) reportHealth() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		return
	}
	s.enqueue(&discoveryv3.DiscoveryRequest{TypeUrl: healthType}) // sendUpstream fills it
}

// request has a request of the agent's own sent, in the place of an earlier one of its type.
func (s *stream) request(m typed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueue(m)
}

func (s *stream) enqueue(m typed) {
	s.own = append(slices.DeleteFunc(s.own, func(x typed) bool { return x.GetTypeUrl() == m.GetTypeUrl() }), m)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// healthRequest returns the report of the latest health.
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

// sendUpstream sends requests: Envoy's, and the agent's own.
func (s *stream) sendUpstream() error {
	send := func(m any) error {
		if err := s.up.SendMsg(m); err != nil && !errors.Is(err, io.EOF) { // of EOF the receiver knows more
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
			own := s.own
			s.own = nil
			s.mu.Unlock()
			for _, m := range own {
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
		if err := s.up.RecvMsg(&m); err != nil {
			return &ended{byUpstream, err}
		}
		s.p.metrics.responses.Inc()
		typeURL, err := typeOf(m, sotwTypeURL)
		if err != nil {
			m.Free()
			return &ended{byUpstream, status.Error(codes.Internal, "the control plane has sent a malformed response")}
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

// handle gives a response to its handler, and acknowledges or rejects it.
func (s *stream) handle(r *response, handler func([]byte) error) {
	var err error
	for _, a := range r.resources {
		panicked := safe.Do("xds handler", func() { err = handler(a.GetValue()) })
		if err = errors.Join(err, panicked); err != nil {
			s.p.o.Log.Warn("a response of the control plane is rejected", "type", r.typeURL, "err", err)
			break
		}
	}
	s.mu.Lock()
	if err == nil && r.sotw != nil {
		s.versions[r.typeURL] = r.sotw.GetVersionInfo()
	}
	version := s.versions[r.typeURL]
	s.mu.Unlock()
	s.request(r.answer(version, nil, err))
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
