package bootstrap

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// testLog is a log that a test reads while it is written.
type testLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *testLog) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), s)
}

const splitRoute = `# Moved down by a comment.
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: a}
spec:
  hosts: [web]
  http:
  - route:
    - destination:
        host: web
        subset: v22
`

const splitRule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\n" +
	"metadata: {name: web, namespace: a}\nspec: {host: web, subsets: [{name: v2, labels: {v: v2}}]}\n"

// A reference that leads nowhere is found while the server runs, at its line and column, logged once, and forgotten
// when it is mended.
func TestReferencesAreFollowed(t *testing.T) {
	o, log := testOptions(t), &testLog{}
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	for file, text := range map[string]string{"route.yaml": splitRoute, "rule.yaml": splitRule} {
		write(t, filepath.Join(o.ConfigDir, file), text)
	}
	s, err := New(o)
	must.Succeed(t, err)
	s.analyst.Rest = time.Millisecond
	stop := run(t, s)
	finding := filepath.Join(o.ConfigDir, "route.yaml") + ":11:17: error: VirtualService a/web: spec.http[0].route[0].destination.subset: "
	eventually(t, "the finding", func() bool {
		for _, d := range s.allFindings() {
			if strings.HasPrefix(d.String(), finding) && strings.Contains(d.Fix, `"v2"`) {
				return true
			}
		}
		return false
	})
	if _, text := fetch(t, s.Addresses().HTTP, "/debug/findings"); !strings.Contains(text, `"code": "IST0101"`) ||
		!strings.Contains(text, `"line": 11`) {
		t.Errorf("/debug/findings: %s", text)
	}
	for _, d := range s.findings() {
		t.Errorf("counted as an object that is not used: %s", d)
	}
	write(t, filepath.Join(o.ConfigDir, "more.yaml"), strings.ReplaceAll(service, "NAME", "more"))
	eventually(t, "the other Service", func() bool { return s.world.Snapshot().ServiceCount() == 2 })
	write(t, filepath.Join(o.ConfigDir, "route.yaml"), strings.ReplaceAll(splitRoute, "v22", "v2"))
	about := func(code string) int {
		n := 0
		for _, d := range s.allFindings() {
			if d.Code == code {
				n++
			}
		}
		return n
	}
	eventually(t, "the end of the finding", func() bool { return about("IST0101") == 0 })
	eventually(t, "Services without endpoints", func() bool { return about("NoEndpoints") == 2 })
	write(t, filepath.Join(o.ConfigDir, "slice.yaml"), "apiVersion: discovery.k8s.io/v1\n"+
		"kind: EndpointSlice\nmetadata: {name: more, namespace: a, labels: {kubernetes.io/service-name: more}}\n"+
		"addressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]\n")
	eventually(t, "one less", func() bool { return about("NoEndpoints") == 1 })
	if n := log.count("level=ERROR"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
