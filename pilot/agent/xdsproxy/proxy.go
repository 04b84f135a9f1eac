package xdsproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/agent/sds"
	"github.com/istiod-lite/istiod-lite/pilot/agent/upstream"
)

// Type URLs that the agent knows.
const (
	listenerType  = "type.googleapis.com/envoy.config.listener.v3.Listener"
	extensionType = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	healthType    = "type.googleapis.com/istio.v1.HealthInformation"

	// NameTableType is the type of the table that the DNS proxy answers by.
	NameTableType = "type.googleapis.com/istio.networking.nds.v1.NameTable"
	// ProxyConfigType is the type by which the control plane sends roots to trust.
	ProxyConfigType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"
)

// Options of a Proxy.
type Options struct {
	Path     string      // of the socket
	Mode     os.FileMode // of the socket; 0: 0600. Applications without a proxy, of other users, need 0666
	Upstream *upstream.Upstream
	// Handlers take the one resource of their type, encoded, when it has changed. An error rejects it.
	Handlers map[string]func(resource []byte) error
	// Extensions returns what Envoy is sent in the place of an extension, encoded as a TypedExtensionConfig. It may
	// take its time. An error rejects it. again means that another call may return what the extension asks for: it is
	// called again after Retry, then after twice as long each time. Nil: extensions are passed on as they are.
	Extensions func(ctx context.Context, resource []byte) (made []byte, again bool, err error)
	Retry      time.Duration // 0: 10 s
	// Debug is HOST:PORT of a server of the control plane's debug pages, for tools on this host; empty: there is none.
	// Node is who asks for them.
	Debug      string
	Node       *corev3.Node
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Bounds of what Envoy may open and send.
const (
	maxStreams = 100
	maxRequest = 32 << 20 // Envoys say which versions they have
)

// Proxy passes streams on to the control plane.
type Proxy struct {
	o        Options
	listener net.Listener
	grpc     *grpc.Server
	debug    *debugServer // nil: there is none
	metrics  metrics

	away atomic.Int64 // streams that could not be opened since the last that could

	mu      sync.Mutex
	health  *health
	streams map[*stream]struct{}
}

// health is what is known of the application.
type health struct {
	healthy bool
	message string
}

// New listens. An error says why the socket cannot be made.
func New(o Options) (*Proxy, error) {
	if o.Path == "" || o.Upstream == nil {
		return nil, errors.New("xdsproxy: neither a path nor a control plane")
	}
	o.Mode, o.Retry, o.Log = cmp.Or(o.Mode, 0o600), cmp.Or(o.Retry, 10*time.Second), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	p := &Proxy{o: o, streams: map[*stream]struct{}{}, metrics: newMetrics()}
	if o.Registerer != nil {
		if err := p.metrics.register(o.Registerer); err != nil {
			return nil, err
		}
	}
	p.grpc = p.server(false)
	var err error
	if p.listener, err = sds.Listen(o.Path, o.Mode); err != nil {
		return nil, err
	}
	if o.Debug != "" {
		if p.debug, err = newDebug(p); err != nil {
			_ = p.listener.Close()
			return nil, err
		}
	}
	return p, nil
}

// server returns a gRPC server of streams, or of those of tools alone.
func (p *Proxy) server(debug bool) *grpc.Server {
	s := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxRequest))
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: discoveryv3.AggregatedDiscoveryService_ServiceDesc.ServiceName, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: sotwMethod, ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return p.serve(s, false, debug) }},
			{StreamName: deltaMethod, ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return p.serve(s, true, debug) }},
		},
	}, p)
	return s
}

// Methods of the aggregated discovery service.
const (
	sotwMethod  = "StreamAggregatedResources"
	deltaMethod = "DeltaAggregatedResources"
)

// Run serves until ctx ends, then removes the socket.
func (p *Proxy) Run(ctx context.Context) error {
	failed := make(chan error, 2)
	safe.Go(p.o.Log, "xds proxy", func() { failed <- p.grpc.Serve(p.listener) })
	if p.debug != nil {
		defer p.debug.stop()
		safe.Go(p.o.Log, "xds debug", func() { failed <- p.debug.serve() })
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serve configuration: %w", err)
	case <-ctx.Done():
		p.grpc.Stop()
		_ = os.Remove(p.o.Path)
		return nil
	}
}

// SetHealth reports the health of the application to the control plane, now and on each new stream. message says what
// is wrong.
func (p *Proxy) SetHealth(healthy bool, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health = &health{healthy, message}
	for s := range p.streams {
		s.reportHealth()
	}
}

// Connected returns how many streams there are now.
func (p *Proxy) Connected() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.streams)
}

func (p *Proxy) lastHealth() *health {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.health
}

func (p *Proxy) add(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams[s] = struct{}{}
}

func (p *Proxy) remove(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, s)
}

// replace puts what Extensions returns in the place of each extension of a response. None waits for another. again says
// for which of them another try may have a better result.
func (p *Proxy) replace(ctx context.Context, list []*anypb.Any) (again []bool, err error) {
	var running sync.WaitGroup
	again = make([]bool, len(list))
	errs := make([]error, len(list))
	for i, a := range list {
		if a.GetTypeUrl() != extensionType {
			continue
		}
		running.Add(1)
		safe.Go(p.o.Log, "xds extension", func() {
			defer running.Done()
			var next []byte
			var err error
			panicked := safe.Do("xds extension", func() { next, again[i], err = p.o.Extensions(ctx, a.GetValue()) })
			if errs[i] = errors.Join(panicked, err); errs[i] == nil {
				a.Value = next
			}
		})
	}
	running.Wait()
	return again, errors.Join(errs...)
}

type metrics struct {
	failures, upstreamEnds, envoyEnds prometheus.Counter
	requests, responses               prometheus.Counter
}

func newMetrics() metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "istio_agent_" + name, Help: help})
	}
	return metrics{
		failures:     counter("istiod_connection_failures", "Streams to the control plane that could not be opened."),
		upstreamEnds: counter("istiod_connection_terminations", "Streams that the control plane has ended."),
		envoyEnds:    counter("envoy_connection_terminations", "Streams that Envoy has ended."),
		requests:     counter("xds_proxy_requests", "Requests that were passed on to the control plane."),
		responses:    counter("xds_proxy_responses", "Responses of the control plane."),
	}
}

func (m metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.failures, m.upstreamEnds, m.envoyEnds, m.requests, m.responses} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}
