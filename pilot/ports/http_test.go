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
