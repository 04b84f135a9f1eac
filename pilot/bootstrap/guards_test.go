package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/limits"
)

func TestPanicsAreContained(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	reg := prometheus.NewRegistry()
	m := newRPCMetrics(reg)
	info := &grpc.UnaryServerInfo{FullMethod: "/s.S/M"}
	_, err := m.unary(t.Context(), nil, info, func(ctx context.Context, req any) (any, error) {
		return recoverUnary(quiet)(ctx, req, info, func(context.Context, any) (any, error) { panic("secret detail") })
	})
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
		t.Errorf("unary: %v", err)
	}
	families, gatherErr := reg.Gather()
	if text := fmt.Sprint(families); gatherErr != nil || !strings.Contains(text, `value:"Internal"`) {
		t.Errorf("not counted as Internal: %s", text)
	}
	err = recoverStream(quiet)(nil, nil, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { panic("secret detail") })
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
		t.Errorf("stream: %v", err)
	}
	w := httptest.NewRecorder()
	guarded(quiet, limits.Default(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret detail") })).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("http: %d %s", w.Code, w.Body)
	}
}

func TestVersion(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/version", nil)
	w := httptest.NewRecorder()
	versionHandler("1.2.3")(w, r)
	if w.Body.String() != "1.2.3" {
		t.Errorf("text: %q", w.Body)
	}
	r.Header.Set("Accept", "application/json")
	w = httptest.NewRecorder()
	versionHandler("1.2.3")(w, r)
	if strings.TrimSpace(w.Body.String()) != `{"clientVersion":{"version":"1.2.3"}}` {
		t.Errorf("json: %q", w.Body)
	}
}
