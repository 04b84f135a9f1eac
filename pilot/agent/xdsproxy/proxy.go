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

// Type URLs that the agent handles.
const (
	listenerType  = "type.googleapis.com/envoy.config.listener.v3.Listener"
	extensionType = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	healthType    = "type.googleapis.com/istio.v1.HealthInformation"

	// NameTableType is the type of the DNS proxy's name table.
	NameTableType = "type.googleapis.com/istio.networking.nds.v1.NameTable"
	// ProxyConfigType is the type in which the control plane sends additional roots.
	ProxyConfigType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"
)

// Options configure a Proxy.
type Options struct {
	Path string // of the socket
	// Mode is the mode of the socket. The default is 0600. Applications without a proxy run as other users and need
	// 0666.
	Mode     os.FileMode
	Upstream *upstream.Upstream
	// Handlers are called with the encoded resource of their type when it has changed. An error rejects the response.
	Handlers map[string]func(resource []byte) error
	// Extensions returns the replacement of an encoded TypedExtensionConfig, and may block. An error rejects the
	// response. retry means that another call may succeed; it is made after MinBackoff, with a backoff that doubles.
	// Without Extensions, extensions are passed on unchanged.
	Extensions func(ctx context.Context, resource []byte) (replacement []byte, retry bool, err error)
	// MinBackoff is the time until the first retry of Extensions. The default is 10 s.
	MinBackoff time.Duration
	// Debug is the HOST:PORT at which tools on this host can read the control plane's debug pages. If it is empty,
	// there is no such server. Requests for pages have Node.
	Debug      string
	Node       *corev3.Node
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Limits on streams and requests of Envoy.
const (
	maxStreams = 100
	maxRequest = 32 << 20 // requests list the versions of all resources
)

// Proxy passes streams on to the control plane.
type Proxy struct {
	o        Options
	listener net.Listener
	grpc     *grpc.Server
	debug    *debugServer // nil without Options.Debug
	metrics  metrics

	// openFailures is the number of streams that failed to open since one last opened.
	openFailures atomic.Int64

	mu      sync.Mutex
	health  *health
	streams map[*stream]struct{}
}

// health is the health of the application.
type health struct {
	healthy bool
	message string
}

// New returns a Proxy that listens. The error says why a socket cannot be made.
func New(o Options) (*Proxy, error) {
	if o.Path == "" || o.Upstream == nil {
		return nil, errors.New("xdsproxy: Options.Path or Options.Upstream is missing")
	}
	o.Mode, o.MinBackoff = cmp.Or(o.Mode, 0o600), cmp.Or(o.MinBackoff, 10*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
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

// server returns a gRPC server for Envoy's streams, or for debug pages only.
func (p *Proxy) server(debug bool) *grpc.Server {
	s := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxRequest))
	stream := func(name string, delta bool) grpc.StreamDesc {
		handler := func(_ any, s grpc.ServerStream) error { return p.serve(s, delta, debug) }
		return grpc.StreamDesc{StreamName: name, ClientStreams: true, ServerStreams: true, Handler: handler}
	}
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: discoveryv3.AggregatedDiscoveryService_ServiceDesc.ServiceName, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{stream(sotwMethod, false), stream(deltaMethod, true)},
	}, p)
	return s
}

// Methods of the aggregated discovery service.
const (
	sotwMethod  = "StreamAggregatedResources"
	deltaMethod = "DeltaAggregatedResources"
)

// Run serves until ctx ends, and then removes the socket.
func (p *Proxy) Run(ctx context.Context) error {
	failed := make(chan error, 2)
	safe.Go(p.o.Log, "xds proxy", func() { failed <- p.grpc.Serve(p.listener) })
	if p.debug != nil {
		defer p.debug.stop()
		safe.Go(p.o.Log, "xds debug", func() { failed <- p.debug.serve() })
	}
	select {
	case err := <-failed:
		return fmt.Errorf("failed to serve configuration: %w", err)
	case <-ctx.Done():
		p.grpc.Stop()
		_ = os.Remove(p.o.Path)
		return nil
	}
}

// SetHealth reports the health of the application to the control plane, now and on each new stream. message says why
// it is unhealthy.
func (p *Proxy) SetHealth(healthy bool, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health = &health{healthy, message}
	for s := range p.streams {
		s.reportHealth()
	}
}

// Connected returns the number of streams.
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

// replace replaces the extensions in a list concurrently. retry says for which of them another call may succeed.
func (p *Proxy) replace(ctx context.Context, list []*anypb.Any) (retry []bool, err error) {
	var running sync.WaitGroup
	retry = make([]bool, len(list))
	errs := make([]error, len(list))
	for i, a := range list {
		if a.GetTypeUrl() != extensionType {
			continue
		}
		running.Add(1)
		safe.Go(p.o.Log, "xds extension", func() {
			defer running.Done()
			var replacement []byte
			var err error
			panicked := safe.Do("xds extension", func() { replacement, retry[i], err = p.o.Extensions(ctx, a.GetValue()) })
			if errs[i] = errors.Join(panicked, err); errs[i] == nil {
				a.Value = replacement
			}
		})
	}
	running.Wait()
	return retry, errors.Join(errs...)
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
		upstreamEnds: counter("istiod_connection_terminations", "Streams that the control plane ended."),
		envoyEnds:    counter("envoy_connection_terminations", "Streams that Envoy ended."),
		requests:     counter("xds_proxy_requests", "Requests that were forwarded to the control plane."),
		responses:    counter("xds_proxy_responses", "Responses from the control plane."),
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
