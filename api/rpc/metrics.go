package rpc

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Metrics are the server metrics that dashboards of gRPC read.
type Metrics struct {
	started, handled, received, sent *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"grpc_type", "grpc_service", "grpc_method"}, more...))
		reg.MustRegister(c)
		return c
	}
	return &Metrics{
		started:  counter("grpc_server_started_total", "RPCs started on the server."),
		handled:  counter("grpc_server_handled_total", "RPCs completed on the server, whatever their outcome.", "grpc_code"),
		received: counter("grpc_server_msg_received_total", "Messages received from clients."),
		sent:     counter("grpc_server_msg_sent_total", "Messages sent to clients."),
	}
}

// bound are the metrics of one method. Methods are those that are registered, so their number is small.
type bound struct {
	m              *Metrics
	labels         []string
	received, sent prometheus.Counter
}

func (m *Metrics) bind(kind, fullMethod string) *bound {
	service, method, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	b := &bound{m: m, labels: []string{kind, service, method}}
	b.received, b.sent = m.received.WithLabelValues(b.labels...), m.sent.WithLabelValues(b.labels...)
	m.started.WithLabelValues(b.labels...).Inc()
	return b
}

func (b *bound) done(err error) {
	b.m.handled.WithLabelValues(append(b.labels, status.Code(err).String())...).Inc()
}

func (m *Metrics) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
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

func (m *Metrics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
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
