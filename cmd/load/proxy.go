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
	bytes atomic.Int64
	// next asks it to drop its stream, which drop does, and to connect at once.
	next atomic.Pointer[again]
	drop atomic.Pointer[context.CancelFunc]
	// stalled proxies ask for everything and read nothing.
	stalled bool

	// What it knows, which outlives its streams: whether it asked for a type and had an answer, what it wants of types
	// that other resources name, the last version of each type, and, in the delta protocol, the version of each
	// resource.
	asked, got [types]bool
	wants      [types]*subscription
	version    [types]string
	held       [types]map[string]string
}

// again is a request to connect anew. Done, which has room, receives once everything is asked for.
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

// run connects, and does so again with Envoy's pauses, until ctx ends.
func (p *proxy) run(ctx context.Context) {
	p.begin = time.Now()
	pause := p.fleet.o.Retry
	var told chan<- struct{} // who asked for this stream and does not know of it yet
	for {
		before := p.bytes.Load()
		err := p.connect(ctx, &told)
		if ctx.Err() != nil {
			return
		}
		if p.bytes.Load() != before { // as Envoy, which is patient anew once a stream has brought something
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

// connect holds one stream until it ends. Told receives once everything is asked for.
func (p *proxy) connect(ctx context.Context, told *chan<- struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.drop.Store(&cancel)
	if p.next.Load() != nil {
		return nil // asked for before it could be dropped
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
		// it may lag behind the stream, and is idle once it is cut off
		if !conn.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
	}
	return errors.New("the connection of a proxy that reads nothing has ended")
}
