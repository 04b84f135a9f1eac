package bootstrap

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/istiod-lite/istiod-lite/api/rpc"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// window is what a client may send, in bytes, before the server has read it: most of what one sends at once.
const window = 256 << 10

// readBuffer is what each connection holds while it waits for the next frame: what is larger is read past it.
const readBuffer = 4 << 10

// newGRPC makes a gRPC server with the limits, the metrics and the guards that every service of it needs.
func newGRPC(o Options, calls *rpc.Calls, more ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(append(slices.Concat(more, calls.Intercept()),
		grpc.ForceServerCodecV2(wire.Codec()),
		grpc.ConnectionTimeout(o.Limits.HandshakeTimeout),
		grpc.MaxHeaderListSize(o.Limits.HeaderListSize),
		grpc.MaxConcurrentStreams(o.Limits.StreamsPerConn),
		grpc.MaxRecvMsgSize(o.Limits.RecvMessage),
		grpc.ReadBufferSize(readBuffer),
		// Windows that gRPC does not size itself: to do so it sends a ping for each message, so that each
		// acknowledgement of a client would cost two more packets.
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: o.KeepaliveInterval, Timeout: o.KeepaliveTimeout,
			MaxConnectionIdle: o.Limits.ConnectionIdle,
			MaxConnectionAge:  o.MaxConnectionAge, MaxConnectionAgeGrace: o.Shutdown, // gRPC spreads the age by a tenth itself
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: o.KeepaliveInterval / 2, PermitWithoutStream: true}),
	)...)
	reflection.Register(s)
	return s
}
