package bootstrap

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

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
