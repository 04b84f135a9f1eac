package main

import (
	"context"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/istiod-lite/istiod-lite/cmd/load"
	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "limit:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("limit", flag.ContinueOnError)
	feeds := f.Bool("feed", false, "be the feeder")
	from := f.String("from", "127.0.0.1:15010", "address of the feeder, or, with -feed, of the ADS of the control plane to copy")
	address := f.String("addr", "127.0.0.1:15110", "address to serve on")
	split := f.Bool("vhds", false, "with -feed: have virtual hosts travel by themselves (VHDS over ADS)")
	namespaces := f.Int("namespaces", 20, "with -feed: namespaces of the world")
	if err := f.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var err error
	if *feeds {
		err = feed(ctx, cancel, *from, *address, *split, *namespaces)
	} else {
		err = fanOut(ctx, cancel, *from, *address)
	}
	// report the cause, not its consequences
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// feed copies a control plane and passes its responses on to each client, until ctx ends. It cancels ctx when something
// fails.
func feed(ctx context.Context, broken context.CancelCauseFunc, from, address string, split bool, namespaces int) error {
	f := newFeeder(split)
	source, err := load.Start(ctx, load.Options{
		Address: from, Proxies: 1, Identity: func(int) load.Identity { return first(namespaces) }, Logger: slog.New(slog.DiscardHandler),
		Minor: 36, // a version that gets whole routes, because the feeder splits them
		Observe: func(_ int, message []byte) {
			if err := f.take(message); err != nil {
				broken(err)
			}
		},
	})
	if err != nil {
		return err
	}
	defer source.Stop()
	if err := source.Wait(ctx); err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		f.feed(conn) // the connection stays open until the process ends
	}
}

// fanOut serves what a feeder passes on, until ctx ends. It cancels ctx when the feeder ends.
func fanOut(ctx context.Context, broken context.CancelCauseFunc, from, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", from)
	if err != nil {
		return err
	}
	defer conn.Close()
	h, synced := newHub(), make(chan struct{})
	go func() { broken(h.fed(gob.NewDecoder(conn), func() { close(synced) })) }()
	select {
	case <-synced:
	case <-ctx.Done():
		return ctx.Err()
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	// Windows have a fixed size, as in istiod-lite. Otherwise gRPC would send a ping for each acknowledgement to size
	// them.
	s := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.ReadBufferSize(4<<10), grpc.StaticStreamWindowSize(256<<10),
		grpc.StaticConnWindowSize(256<<10))
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "DeltaAggregatedResources", ServerStreams: true, ClientStreams: true,
				Handler: func(_ any, s grpc.ServerStream) error { return h.serve(s, false) }},
			{StreamName: "StreamAggregatedResources", ServerStreams: true, ClientStreams: true,
				Handler: func(_ any, s grpc.ServerStream) error { return h.serve(s, true) }},
		}}, nil)
	context.AfterFunc(ctx, s.Stop)
	return s.Serve(l)
}

// first returns the identity of the first pod's sidecar.
func first(namespaces int) load.Identity {
	return load.Identity{
		Pod: world.PodName(0, 0), Namespace: world.World{Namespaces: namespaces}.Namespace(0), IP: world.PodIP(0, 0), Workload: world.Name(0),
		ServiceAccount: world.Name(0),
		Labels:         world.PodLabels(0), Node: world.NodeName(0, 0), Region: "r1", Zone: world.Zone(0),
	}
}

// codec sends and receives bytes.
type codec struct{}

// Name returns the name of the codec that clients know.
func (codec) Name() string { return "proto" }

// Marshal passes buffers on.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(mem.BufferSlice)
	if !ok {
		return nil, fmt.Errorf("cannot send %T", v)
	}
	return b, nil
}

// Unmarshal copies a request.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("cannot receive %T", v)
	}
	*to = data.Materialize()
	return nil
}
