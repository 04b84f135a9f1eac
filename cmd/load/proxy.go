package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

const (
	service      = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	whole        = service + "StreamAggregatedResources"
	deltaMethod  = service + "DeltaAggregatedResources"
	longestRetry = 30 * time.Second
	// window is how many bytes may be in flight. Istio's agent, which connects to the control plane, uses this number.
	window = 1 << 20
)

// proxy is one simulated Envoy.
type proxy struct {
	fleet *Fleet
	index int
	node  *corev3.Node
	begin time.Time // time of its first try
	done  bool      // true after the first full configuration
	bytes atomic.Int64
	// next asks the proxy to drop its stream, by calling drop, and to connect again at once.
	next atomic.Pointer[again]
	drop atomic.Pointer[context.CancelFunc]
	// stalled proxies subscribe to everything and read nothing.
	stalled bool

	// These fields outlive streams. They hold whether the proxy asked for a type and got an answer, the subscriptions to
	// types that other resources name, the last version of each type and, in the delta protocol, the version of each
	// resource.
	asked, got [types]bool
	wants      [types]*subscription
	version    [types]string
	held       [types]map[string]string
}

// again is a request to connect again. done is buffered, and receives once the proxy has subscribed to everything.
type again struct {
	stall bool
	done  chan<- struct{}
}

func newProxy(f *Fleet, index int, node *corev3.Node) *proxy {
	p := &proxy{fleet: f, index: index, node: node}
	for _, kind := range []Type{Endpoints, Routes, Secrets} {
		p.wants[kind] = newSubscription(kind)
	}
	return p
}

// connectAgain may be called from any goroutine.
func (p *proxy) connectAgain(a again) {
	p.next.Store(&a)
	if drop := p.drop.Load(); drop != nil {
		(*drop)()
	}
}

// run connects until ctx ends, with Envoy's pauses between the tries.
func (p *proxy) run(ctx context.Context) {
	p.begin = time.Now()
	pause := p.fleet.o.Retry
	var told chan<- struct{} // receives once this stream has subscribed; nil if no caller waits
	for {
		before := p.bytes.Load()
		err := p.connect(ctx, &told)
		if ctx.Err() != nil {
			return
		}
		if p.bytes.Load() != before { // like Envoy, whose pause is short again after a stream that brought something
			pause = p.fleet.o.Retry
		}
		if a := p.next.Swap(nil); a != nil {
			told, p.stalled, pause = a.done, a.stall, p.fleet.o.Retry
			continue
		}
		p.fleet.ended(p, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(rand.N(pause) + 1):
		}
		pause = min(2*pause, longestRetry)
	}
}

// connect holds one stream until it ends. told receives once the proxy has subscribed to everything.
func (p *proxy) connect(ctx context.Context, told *chan<- struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.drop.Store(&cancel)
	if p.next.Load() != nil {
		return nil // connectAgain was called before the stream could be dropped
	}
	o := &p.fleet.o
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(o.Credentials), grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(1<<30)),
	}
	if o.PerRPC != nil {
		dial = append(dial, grpc.WithPerRPCCredentials(o.PerRPC))
	}
	conn, err := grpc.NewClient("passthrough:///"+o.Address, dial...)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	method := deltaMethod
	if o.StateOfTheWorld {
		method = whole
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return fmt.Errorf("open a stream: %w", err)
	}
	s := &session{proxy: p, stream: stream}
	if err := s.resume(); err != nil {
		return err
	}
	p.fleet.live.Add(1)
	defer p.fleet.live.Add(-1)
	if *told != nil {
		*told <- struct{}{}
		*told = nil
	}
	if !p.stalled {
		return s.serve()
	}
	for state := conn.GetState(); state == connectivity.Ready || state == connectivity.Connecting; state = conn.GetState() {
		// The state may lag behind the stream. It is idle once the connection is cut.
		if !conn.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
	}
	return errors.New("the connection of a proxy that reads nothing has ended")
}
