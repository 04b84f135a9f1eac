package bootstrap

import (
	"context"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// window is what a client may send, in bytes, before the server has read it: most of what one sends at once.
const window = 256 << 10

// readBuffer is what each connection holds while it waits for the next frame: what is larger is read past it.
const readBuffer = 4 << 10

// newGRPC makes a gRPC server with the limits, the metrics and the guards that every service of it needs.
func newGRPC(o Options, m *rpcMetrics, more ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(append(more,
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
		// The metrics are outermost: what a panic was turned into is what they count.
		grpc.ChainStreamInterceptor(m.stream, recoverStream(o.Logger)),
		grpc.ChainUnaryInterceptor(m.unary, recoverUnary(o.Logger)),
	)...)
	reflection.Register(s)
	return s
}

func recoverStream(logger *slog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		if p := safe.Do("grpc handler", func() { err = handler(srv, ss) }); p != nil {
			return internal(logger, info.FullMethod, p)
		}
		return err
	}
}

func recoverUnary(logger *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		if p := safe.Do("grpc handler", func() { resp, err = handler(ctx, req) }); p != nil {
			return nil, internal(logger, info.FullMethod, p)
		}
		return resp, err
	}
}

// internal logs a panic and returns the error for the client, which holds nothing of it.
func internal(logger *slog.Logger, method string, p error) error {
	logger.Error("a request panicked", "method", method, "err", p, "stack", string(p.(*safe.Panic).Stack))
	return status.Error(codes.Internal, "internal error")
}

// rpcMetrics are the server metrics by which gRPC dashboards go.
type rpcMetrics struct {
	started, handled, received, sent *prometheus.CounterVec
}

func newRPCMetrics(reg prometheus.Registerer) *rpcMetrics {
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"grpc_type", "grpc_service", "grpc_method"}, more...))
		reg.MustRegister(c)
		return c
	}
	return &rpcMetrics{
		started:  counter("grpc_server_started_total", "RPCs started on the server."),
		handled:  counter("grpc_server_handled_total", "RPCs completed on the server, whatever their outcome.", "grpc_code"),
		received: counter("grpc_server_msg_received_total", "Messages received from clients."),
		sent:     counter("grpc_server_msg_sent_total", "Messages sent to clients."),
	}
}

// bound are the metrics of one method. Methods are those that are registered, so their number is small.
type bound struct {
	m              *rpcMetrics
	labels         []string
	received, sent prometheus.Counter
}

func (m *rpcMetrics) bind(kind, fullMethod string) *bound {
	service, method, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	b := &bound{m: m, labels: []string{kind, service, method}}
	b.received, b.sent = m.received.WithLabelValues(b.labels...), m.sent.WithLabelValues(b.labels...)
	m.started.WithLabelValues(b.labels...).Inc()
	return b
}

func (b *bound) done(err error) {
	b.m.handled.WithLabelValues(append(b.labels, status.Code(err).String())...).Inc()
}

func (m *rpcMetrics) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	kind := "bidi_stream"
	switch {
	case !info.IsClientStream && !info.IsServerStream: // one message each way
		kind = "unary"
	case !info.IsClientStream:
		kind = "server_stream"
	case !info.IsServerStream:
		kind = "client_stream"
	}
	b := m.bind(kind, info.FullMethod)
	err := handler(srv, &countedStream{ss, b})
	b.done(err)
	return err
}

func (m *rpcMetrics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	b := m.bind("unary", info.FullMethod)
	b.received.Inc()
	resp, err := handler(ctx, req)
	if err == nil {
		b.sent.Inc()
	}
	b.done(err)
	return resp, err
}

type countedStream struct {
	grpc.ServerStream
	b *bound
}

func (s *countedStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.b.sent.Inc()
	}
	return err
}

func (s *countedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.b.received.Inc()
	}
	return err
}
