package rpc

import (
	"context"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Calls counts the calls of gRPC servers, and recovers panics of their handlers.
type Calls struct {
	logger                           *slog.Logger
	started, handled, received, sent *prometheus.CounterVec
}

// New returns Calls, and registers their metrics.
func New(reg prometheus.Registerer, logger *slog.Logger) *Calls {
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		labels := append([]string{"grpc_type", "grpc_service", "grpc_method"}, more...)
		return promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Calls{
		logger:   logger,
		started:  counter("grpc_server_started_total", "RPCs started on the server."),
		handled:  counter("grpc_server_handled_total", "RPCs completed on the server, whatever their outcome.", "grpc_code"),
		received: counter("grpc_server_msg_received_total", "Messages received from clients."),
		sent:     counter("grpc_server_msg_sent_total", "Messages sent to clients."),
	}
}

// Intercept returns the options of a server whose calls are counted.
func (c *Calls) Intercept() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainStreamInterceptor(c.stream), grpc.ChainUnaryInterceptor(c.unary)}
}

// stream runs the handler of a stream.
func (c *Calls) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	kind := "bidi_stream"
	switch {
	case !info.IsClientStream && !info.IsServerStream: // one message each way
		kind = "unary"
	case !info.IsClientStream:
		kind = "server_stream"
	case !info.IsServerStream:
		kind = "client_stream"
	}
	return c.call(kind, info.FullMethod, func(received, sent prometheus.Counter) error {
		return handler(srv, &countedStream{ss, received, sent})
	})
}

// unary runs the handler of a call with one message each way.
func (c *Calls) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	err = c.call("unary", info.FullMethod, func(received, sent prometheus.Counter) (err error) {
		received.Inc()
		if resp, err = handler(ctx, req); err == nil {
			sent.Inc()
		}
		return err
	})
	return resp, err
}

// call runs the handler of a call with the counters of its messages. If the handler panics, the client's error has no
// details. Only registered methods are called, so the number of label values is bounded.
func (c *Calls) call(kind, method string, handler func(received, sent prometheus.Counter) error) (err error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	labels := []string{kind, service, name}
	c.started.WithLabelValues(labels...).Inc()
	received, sent := c.received.WithLabelValues(labels...), c.sent.WithLabelValues(labels...)
	if p := safe.Do("grpc handler", func() { err = handler(received, sent) }); p != nil {
		c.logger.Error("recovered from a panic", "method", method, "err", p, "stack", string(p.(*safe.Panic).Stack))
		err = status.Error(codes.Internal, "internal error")
	}
	c.handled.WithLabelValues(append(labels, status.Code(err).String())...).Inc()
	return err
}

// countedStream counts the messages of a stream.
type countedStream struct {
	grpc.ServerStream
	received, sent prometheus.Counter
}

func (s *countedStream) SendMsg(m any) error { return count(s.sent, s.ServerStream.SendMsg(m)) }

func (s *countedStream) RecvMsg(m any) error { return count(s.received, s.ServerStream.RecvMsg(m)) }

func count(c prometheus.Counter, err error) error {
	if err == nil {
		c.Inc()
	}
	return err
}
