package validation

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

var update = flag.Bool("update", false, "write which verdicts of testdata/agreement.txt differ")

// TestAgreement holds Review against what the webhook of Istio 1.31.1 said of the same objects. A line of the file is
// its verdict, the API version, the kind and the spec; "!" before it says that ours is known to be the other one.
func TestAgreement(t *testing.T) {
	const path = "testdata/agreement.txt"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	differ := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		line, known := strings.CutPrefix(line, "!")
		if known {
			line = strings.TrimSpace(line)
		}
		part := strings.SplitN(line, " ", 4)
		if len(part) != 4 {
			t.Fatalf("no verdict, API version, kind and spec: %s", line)
		}
		version, err := schema.ParseGroupVersion(part[1])
		if err != nil {
			t.Fatal(err)
		}
		object, err := json.Marshal(map[string]any{
			"apiVersion": part[1], "kind": part[2], "metadata": map[string]string{"name": "a", "namespace": "ns"}, "spec": json.RawMessage(part[3]),
		})
		if err != nil {
			t.Fatal(err)
		}
		findings, ok := Review(limits.Default(), version.WithKind(part[2]), object)
		if !ok {
			t.Fatalf("an unknown kind: %s", line)
		}
		verdict := "allowed"
		for _, d := range findings {
			if d.Severity == diag.Error {
				verdict = "denied"
			}
		}
		agrees := verdict == part[0]
		if agrees == known && !*update {
			t.Errorf("%s: is now %s: %v", line, verdict, findings)
		}
		if !agrees {
			differ++
			line = "! " + line
		}
		lines = append(lines, line)
	}
	t.Logf("%d of %d verdicts are istiod's", len(lines)-differ, len(lines))
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
