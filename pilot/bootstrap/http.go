package bootstrap

import (
	"encoding/json"
	"net/http"
	"strings"
)

// readyHandler answers the readiness probe.
func readyHandler(ready func() bool, awaited func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			text := "not ready"
			if names := awaited(); len(names) > 0 {
				text += ": waiting for " + strings.Join(names, ", ")
			}
			http.Error(w, text, http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
	}
}

// versionHandler answers like istiod: the version as text.
func versionHandler(version string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "application/json") {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"clientVersion": map[string]string{"version": version}})
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(version))
	}
}
