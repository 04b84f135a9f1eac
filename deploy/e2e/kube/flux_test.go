package kube

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// healthChecks are the expressions for Flux in docs/integrations/gitops.md, by name.
type healthChecks map[string]cel.Program

func readHealthChecks(t *testing.T) healthChecks {
	t.Helper()
	page, err := os.ReadFile("../../../docs/integrations/gitops.md")
	must.Succeed(t, err)
	env, err := cel.NewEnv(cel.OptionalTypes())
	must.Succeed(t, err)
	h := healthChecks{}
	for _, m := range regexp.MustCompile(`(?m)^    (failed|current): (.*)$`).FindAllStringSubmatch(string(page), -1) {
		parsed, issues := env.Parse(m[2])
		must.Succeed(t, issues.Err())
		h[m[1]], err = env.Program(parsed)
		must.Succeed(t, err)
	}
	if len(h) != 2 {
		t.Fatalf("the page has %d expressions", len(h))
	}
	return h
}

// read returns how Flux reads an object, by the rules of its RFC 0009: first the generations, then each expression.
func (h healthChecks) read(u *unstructured.Unstructured) kstatus.Status {
	at, found, err := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	if err == nil && found && at != u.GetGeneration() {
		return kstatus.InProgressStatus
	}
	for _, c := range []struct {
		name string
		is   kstatus.Status
	}{{"failed", kstatus.FailedStatus}, {"current", kstatus.CurrentStatus}} {
		out, _, err := h[c.name].Eval(u.Object)
		if err != nil {
			return kstatus.UnknownStatus
		}
		if out.Value() == true {
			return c.is
		}
	}
	return kstatus.InProgressStatus
}
