package main

import (
	"context"
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
	"google.golang.org/protobuf/proto"

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
	from := f.String("from", "127.0.0.1:15010", "ADS address of the control plane to copy")
	address := f.String("addr", "127.0.0.1:15110", "address to serve on")
	split := f.Bool("vhds", false, "send virtual hosts by themselves (VHDS over ADS)")
	namespaces := f.Int("namespaces", 20, "namespaces of the world")
	if err := f.Parse(args); err != nil {
		return err
	}
	h := newHub(*split)
	var broken error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	source, err := load.Start(ctx, load.Options{
		Address: *from, Proxies: 1, Identity: func(int) load.Identity { return first(*namespaces) }, Logger: slog.New(slog.DiscardHandler),
		Minor: 36, // one that is sent routes whole: splitting them is decided here
		Observe: func(_ int, message []byte) {
			if err := h.take(message); err != nil {
				broken = err
				cancel()
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
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	// Windows of a fixed size, as istiod-lite has them: gRPC would send a ping for each acknowledgement to size them.
	s := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.ReadBufferSize(4<<10), grpc.StaticStreamWindowSize(256<<10), grpc.StaticConnWindowSize(256<<10))
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		{StreamName: "DeltaAggregatedResources", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return h.delta(s) }},
		{StreamName: "StreamAggregatedResources", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return h.sotw(s) }},
	}}, nil)
	context.AfterFunc(ctx, s.Stop)
	err = s.Serve(l)
	source.Stop()
	return errors.Join(err, broken)
}

// first is the sidecar of the first pod.
func first(namespaces int) load.Identity {
	return load.Identity{
		Pod: world.PodName(0, 0), Namespace: world.World{Namespaces: namespaces}.Namespace(0), IP: world.PodIP(0, 0), Workload: world.Name(0), ServiceAccount: world.Name(0),
		Labels: world.PodLabels(0), Node: world.NodeName(0, 0), Region: "r1", Zone: world.Zone(0),
	}
}

// codec sends buffers as they are and decodes requests.
type codec struct{}

// Name is that of the codec that clients know.
func (codec) Name() string { return "proto" }

// Marshal passes buffers on.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(mem.BufferSlice)
	if !ok {
		return nil, fmt.Errorf("cannot send %T", v)
	}
	return b, nil
}

// Unmarshal decodes a request.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	return proto.Unmarshal(data.Materialize(), v.(proto.Message))
}
