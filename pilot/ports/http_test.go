package ports

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestPanicsAreContained(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	w := httptest.NewRecorder()
	guarded(quiet, limits.Default(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret detail") })).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("http: %d %s", w.Code, w.Body)
	}
}

// TestShare: a port that shares another one has its address, and none if the other one does not listen.
func TestShare(t *testing.T) {
	p := &Ports{Logger: slog.New(slog.DiscardHandler), Limits: limits.Default()}
	p.Share(GRPC, Plain)
	if a := p.Addresses(); a != (Addresses{}) {
		t.Errorf("nothing listens: %v", a)
	}
	if err := p.ServeHTTP(t.Context(), Plain, "127.0.0.1:0", http.NotFoundHandler(), HTTP{}); err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	p.Share(GRPC, Plain)
	if a := p.Addresses(); a.GRPC == "" || a.GRPC != a.HTTP {
		t.Errorf("shared: %v", a)
	}
}
