package ports

import (
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/rpc"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// window is what a client may send, in bytes, before the server has read it: most of what one sends at once.
const window = 256 << 10

// readBuffer is what each connection holds while it waits for the next frame: what is larger is read past it.
const readBuffer = 4 << 10

// Keepalive are the times of connections of gRPC.
type Keepalive struct {
	Interval, Timeout time.Duration // of pings
	MaxAge, Grace     time.Duration // of a connection, and of its streams after that. 0 is no bound.
}

// NewGRPC makes a gRPC server with the limits, the metrics and the guards that each service of it needs.
func NewGRPC(l limits.Limits, k Keepalive, calls *rpc.Calls, more ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(append(slices.Concat(more, calls.Intercept()),
		grpc.ForceServerCodecV2(wire.Codec()),
		grpc.ConnectionTimeout(l.HandshakeTimeout),
		grpc.MaxHeaderListSize(l.HeaderListSize),
		grpc.MaxConcurrentStreams(l.StreamsPerConn),
		grpc.MaxRecvMsgSize(l.RecvMessage),
		grpc.ReadBufferSize(readBuffer),
		// Windows that gRPC does not size itself: to do so it sends a ping for each message, so that each
		// acknowledgement of a client would cost two more packets.
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: k.Interval, Timeout: k.Timeout,
			MaxConnectionIdle: l.ConnectionIdle,
			MaxConnectionAge:  k.MaxAge, MaxConnectionAgeGrace: k.Grace, // gRPC spreads the age by a tenth itself
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: k.Interval / 2, PermitWithoutStream: true}),
	)...)
	reflection.Register(s)
	return s
}
