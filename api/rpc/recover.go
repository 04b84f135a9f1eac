package rpc

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Intercept returns the options of a server whose handlers are counted and may panic. The metrics are outermost: they
// count the errors that panics become.
func (m *Metrics) Intercept(logger *slog.Logger) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainStreamInterceptor(m.stream, recoverStream(logger)), grpc.ChainUnaryInterceptor(m.unary, recoverUnary(logger)),
	}
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

// internal logs a panic and returns the error for the client, which has no detail of the panic.
func internal(logger *slog.Logger, method string, p error) error {
	logger.Error("a request panicked", "method", method, "err", p, "stack", string(p.(*safe.Panic).Stack))
	return status.Error(codes.Internal, "internal error")
}
