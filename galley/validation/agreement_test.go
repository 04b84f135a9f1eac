package validation

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var update = flag.Bool("update", false, "write which verdicts of testdata/agreement.txt differ")

// agreement is one object, and what the webhook of Istio 1.31.1 said of it.
type agreement struct {
	verdict    string // allowed or denied
	gvk        schema.GroupVersionKind
	spec       string // JSON
	known      bool   // to be checked otherwise here
	line, file string // the line without its mark, and the object as an API server sends it
}

// agreements reads testdata/agreement.txt.
func agreements(t testing.TB) []agreement {
	t.Helper()
	text, err := os.ReadFile(agreementFile)
	must.Succeed(t, err)
	var all []agreement
	for line := range strings.Lines(string(text)) {
		line, known := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "! ")
		part := strings.SplitN(line, " ", 4)
		if len(part) != 4 {
			t.Fatalf("no verdict, API version, kind and spec: %s", line)
		}
		version, err := schema.ParseGroupVersion(part[1])
		must.Succeed(t, err)
		a := agreement{part[0], version.WithKind(part[2]), part[3], known, line, ""}
		a.file = withSpec(a.gvk, a.spec)
		all = append(all, a)
	}
	return all
}

// withSpec returns an object as an API server sends it.
func withSpec(gvk schema.GroupVersionKind, spec string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"a","namespace":"ns"},"spec":%s}`, gvk.GroupVersion(), gvk.Kind, spec)
}

const agreementFile = "testdata/agreement.txt"

// TestAgreement holds Review against what the webhook of Istio 1.31.1 said of the same objects. A line of the file is
// its verdict, the API version, the kind and the spec; "!" before it says that ours is known to be the other one.
func TestAgreement(t *testing.T) {
	histories.NoRace(t)
	var lines []string
	differ := 0
	for _, a := range agreements(t) {
		findings, ok := Review(limits.Default(), a.gvk, []byte(a.file))
		if !ok {
			t.Fatalf("an unknown kind: %s", a.line)
		}
		verdict := "allowed"
		if HasErrors(findings) {
			verdict = "denied"
		}
		line, agrees := a.line, verdict == a.verdict
		if agrees == a.known && !*update {
			t.Errorf("%s: is now %s: %v", a.line, verdict, findings)
		}
		if !agrees {
			differ++
			line = "! " + line
		}
		lines = append(lines, line)
	}
	t.Logf("%d of %d verdicts are istiod's", len(lines)-differ, len(lines))
	if *update {
		must.Succeed(t, os.WriteFile(agreementFile, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	}
}
