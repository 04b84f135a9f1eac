package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/webhook"
)

// BenchmarkReview measures a review without what HTTP costs.
func BenchmarkReview(b *testing.B) {
	h := newWebhook(prometheus.NewRegistry())
	for name, spec := range map[string]string{
		"valid": `{"hosts":["a.example.com"],` +
			`"http":[{"match":[{"uri":{"prefix":"/a"}}],"route":[{"destination":{"host":"b"}}]},{"route":[{"destination":{"host":"b"}}]}]}`,
		"invalid": `{"hosts":["a.example.com"],"http":[{"match":[{"uri":{"regex":"("}}],"route":[{"destination":{"host":"b"}}]}]}`,
	} {
		body, err := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": map[string]any{
			"uid": "u", "operation": "CREATE", "object": object(networking, "VirtualService", "", spec),
		}})
		must.Succeed(b, err)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, webhook.Path, bytes.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
