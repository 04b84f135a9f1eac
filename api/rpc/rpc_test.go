package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestPanicsAreContained: a panic is an internal error that tells its client nothing, and is counted as one.
func TestPanicsAreContained(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := New(reg, slog.New(slog.DiscardHandler))
	info := &grpc.UnaryServerInfo{FullMethod: "/s.S/M"}
	_, err := c.unary(t.Context(), nil, info, func(context.Context, any) (any, error) { panic("secret detail") })
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
		t.Errorf("unary: %v", err)
	}
	families, gatherErr := reg.Gather()
	if text := fmt.Sprint(families); gatherErr != nil || !strings.Contains(text, `value:"Internal"`) {
		t.Errorf("not counted as Internal: %s", text)
	}
	err = c.stream(nil, nil, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { panic("secret detail") })
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
		t.Errorf("stream: %v", err)
	}
}
