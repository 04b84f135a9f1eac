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

// window is the number of bytes that a client may send before the server reads them. gRPC keeps them in memory for each
// client, and all clients may connect at once.
const window = 64 << 10

// readBuffer is the buffer of each connection in bytes. Larger frames are read past it.
const readBuffer = 4 << 10

// Keepalive has the time limits of gRPC connections.
type Keepalive struct {
	Interval, Timeout time.Duration // of pings
	MaxAge, Grace     time.Duration // age of a connection, and time for its streams after that; 0 for no bound
}

// NewGRPC returns a gRPC server with the limits, metrics and guards that all services need.
func NewGRPC(l limits.Limits, k Keepalive, calls *rpc.Calls, more ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(append(slices.Concat(more, calls.Intercept()),
		grpc.ForceServerCodecV2(wire.Codec()),
		grpc.ConnectionTimeout(l.HandshakeTimeout),
		grpc.MaxHeaderListSize(l.HeaderListSize),
		grpc.MaxConcurrentStreams(l.StreamsPerConn),
		grpc.MaxRecvMsgSize(l.RecvMessage),
		grpc.ReadBufferSize(readBuffer),
		// Static windows. To size them dynamically, gRPC sends a ping for each message, and each acknowledgement of a
		// client would cost two more packets.
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: k.Interval, Timeout: k.Timeout,
			MaxConnectionIdle: l.ConnectionIdle,
			MaxConnectionAge:  k.MaxAge, MaxConnectionAgeGrace: k.Grace, // gRPC varies the age by 10 %
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: k.Interval / 2, PermitWithoutStream: true}),
	)...)
	reflection.Register(s)
	return s
}
