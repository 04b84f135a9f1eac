package bootstrap

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/limits"
)

func TestPanicsAreContained(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
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
