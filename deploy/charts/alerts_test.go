package charts

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// The rules of alerts read metrics that the server, API servers or kube-state-metrics have.
func TestAlerts(t *testing.T) {
	var sources bytes.Buffer
	for _, dir := range []string{"pilot", "citadel", "galley"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			sources.Write(text)
			return err
		})
		must.Succeed(t, err)
	}
	for _, h := range helms(t) {
		out := template(t, h, "istiod", chart(t, "istiod"), "--set", "alerts.enabled=true,revision=canary")
		_, rule, ok := strings.Cut(out, "kind: PrometheusRule\n")
		if !ok {
			t.Fatalf("%s: no PrometheusRule", h.Name)
		}
		rule, _, _ = strings.Cut(rule, "\n---\n")
		if n := strings.Count(rule, "- alert: "); n != 10 {
			t.Errorf("%s: %d alerts", h.Name, n)
		}
		names := regexp.MustCompile(`\b(?:pilot|citadel|galley|webhook|istiod)_[a-z_]+\b`).FindAllString(rule, -1)
		slices.Sort(names)
		names = slices.Compact(names)
		if len(names) != 11 {
			t.Errorf("%s: metrics %v", h.Name, names)
		}
		for _, name := range names {
			if name = strings.TrimPrefix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_expiry_timestamp"),
				"citadel_server_"); !bytes.Contains(sources.Bytes(), []byte(`"`+name+`"`)) {
				t.Errorf("%s: the server has no metric %s", h.Name, name)
			}
		}
		// Rejections are on the page of pushes, and not among the findings.
		_, rejected, _ := strings.Cut(rule, "- alert: IstiodConfigurationRejected\n")
		rejected, _, _ = strings.Cut(rejected, "- alert: ")
		if !strings.Contains(rejected, "/debug/pushes") || strings.Contains(rejected, "/debug/findings") {
			t.Errorf("%s: the alert about rejections leads to another page: %s", h.Name, rejected)
		}
		if !strings.Contains(rule, `deployment="istiod-canary"`) {
			t.Errorf("%s: not about the revision's own Deployment", h.Name)
		}
		if strings.Contains(template(t, h, "istiod", chart(t, "istiod")), "PrometheusRule") {
			t.Errorf("%s: alerts that are not enabled", h.Name)
		}
	}
}
