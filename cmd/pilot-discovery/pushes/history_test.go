package pushes

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// TestHistory: versions are a table with the newest first, and the command is the one for the version before. Replicas
// that did not answer are named beside each format.
func TestHistory(t *testing.T) {
	at, took := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local), 1.5
	h := progress.History{
		Object: progress.Object{Kind: "VirtualService", Namespace: "a", Name: "web"},
		Versions: []progress.Past{
			{Deleted: true, Time: &at, Proxies: 2, NoRestore: "it is too large"},
			{Generation: 2, Time: &at, Manager: "kubectl", Written: &at, Proxies: 3, Counted: true, Took: &took, Restore: "kubectl apply -f -\n"},
			{Version: "0123456789abcdef", Position: "web.yaml:1:1"},
			{Generation: 1, Time: &at, Proxies: 3, Counted: true, Invalid: true},
		},
		Replicas: []progress.Replica{{Name: "istiod-0", State: progress.InForce}, {Name: "istiod-1", Error: "it did not answer within 2s"}},
	}
	const silent = "\nistiod-1 did not answer: it did not answer within 2s\n"
	for output, want := range map[string]string{
		"table": `TIME VERSION PROXIES IN FORCE AFTER WRITTEN BY
2026-01-02 03:04:05 deleted >=2 - -
2026-01-02 03:04:05 2 3 1.5s kubectl
- 01234567 - - -
2026-01-02 03:04:05 1 3 invalid -

No command brings 2 back: it is too large.
` + silent,
		"wide": `TIME VERSION PROXIES IN FORCE AFTER WRITTEN BY WRITTEN READ FROM
2026-01-02 03:04:05 deleted >=2 - - - -
2026-01-02 03:04:05 2 3 1.5s kubectl 2026-01-02 03:04:05 -
- 0123456789abcdef - - - - web.yaml:1:1
2026-01-02 03:04:05 1 3 invalid - - -

No command brings 2 back: it is too large.

This brings 01234567 back:

kubectl apply -f -
` + silent,
		"name": "deleted\n2\n01234567\n1\n",
	} {
		var out, said bytes.Buffer
		w := writer{out: &out, said: &said, output: output}
		must.Succeed(t, w.history(&h))
		if got := regexp.MustCompile(` {2,}`).ReplaceAllString(out.String(), " "); got != want {
			t.Errorf("-o %s:\n%s\nwant\n%s", output, got, want)
		}
		if output == "name" && said.String() != silent {
			t.Errorf("-o name says %q", said.String())
		}
	}
	var out bytes.Buffer
	w := writer{out: &out, said: &out, output: "json"}
	must.Succeed(t, w.history(&progress.History{Versions: h.Versions}))
	var again progress.History
	if err := json.Unmarshal(out.Bytes(), &again); err != nil || len(again.Versions) != 4 || again.Versions[1].Manager != "kubectl" {
		t.Errorf("%v: %s", err, out.String())
	}
	w = writer{out: full{}, said: &out, output: "table"}
	if err := w.history(&h); err == nil {
		t.Error("a table that cannot be written is no error")
	}
	out.Reset()
	w = writer{out: &out, output: "table"}
	must.Succeed(t, w.history(&progress.History{}))
	if !strings.HasPrefix(out.String(), "The object has not changed") {
		t.Errorf("without versions: %s", out.String())
	}
}
