package charts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/injector"
)

// Each golden holds values, a pod, and the pod that the chart's templates make of it. The result has no field that
// Kubernetes does not know.
func TestInjection(t *testing.T) {
	files, err := filepath.Glob("testdata/injection/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil || len(a.Files) < 2 {
				t.Fatal("want values.yaml and pod.yaml", err)
			}
			for _, h := range helms(t) {
				i, err := Injector(template(t, h, "istiod", chart(t, "istiod"), "-f", write(t, string(a.Files[0].Data))))
				must.Succeed(t, err)
				pod, err := yaml.YAMLToJSON(a.Files[1].Data)
				must.Succeed(t, err)
				r, err := i.Inject(t.Context(), injector.Request{Pod: pod, Namespace: "shop"})
				if err != nil || r.Skipped != "" {
					t.Fatalf("%s: not injected: %v", h.Name, err)
				}
				text, err := yaml.Marshal(r.Pod)
				must.Succeed(t, err)
				if err := yaml.UnmarshalStrict(text, &corev1.Pod{}); err != nil {
					t.Error(err)
				}
				got := &txtar.Archive{Comment: a.Comment, Files: []txtar.File{a.Files[0], a.Files[1], {Name: "injected.yaml", Data: text}}}
				if *update && h.Name == "helm4" {
					a = got
					must.Succeed(t, os.WriteFile(file, txtar.Format(got), 0o644))
				}
				if d := cmp.Diff(string(txtar.Format(a)), string(txtar.Format(got))); d != "" {
					t.Errorf("%s: %s", h.Name, d)
				}
			}
		})
	}
}
