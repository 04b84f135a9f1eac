package pages

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/served"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestNativeHistograms: a scrape in Prometheus's protobuf format has native histograms in addition to classic buckets.
func TestNativeHistograms(t *testing.T) {
	s := served.Start(t, served.Options{Mesh: map[string]string{"mesh.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"}})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Monitoring+"/metrics", nil)
	must.Succeed(t, err)
	format := expfmt.NewFormat(expfmt.TypeProtoDelim)
	req.Header.Set("Accept", string(format))
	resp, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	defer resp.Body.Close()
	families := expfmt.NewDecoder(resp.Body, format)
	var found []string
	for {
		var f dto.MetricFamily
		if err := families.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, m := range f.Metric {
			if h := m.GetHistogram(); h != nil && h.Schema != nil {
				found = append(found, f.GetName())
				if len(h.Bucket) < 5 {
					t.Errorf("%s has %d classic buckets", f.GetName(), len(h.Bucket))
				}
			}
		}
	}
	for _, name := range []string{"pilot_debounce_time", "pilot_pushcontext_init_seconds"} {
		if !slices.Contains(found, name) {
			t.Errorf("%s has no native histogram; %v have", name, found)
		}
	}
}
