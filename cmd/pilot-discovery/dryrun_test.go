package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/diff"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// With --server-side the API server is asked by dry runs, and what it refuses is no change that is made. It is reached
// by kubectl's flags, without a kubeconfig.
func TestServerSide(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		dry := r.URL.Query().Get("dryRun")
		if strings.Contains(string(body), `"dryRun":["All"]`) {
			dry = "All"
		}
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.Path+" "+dry+" "+r.Header.Get("Authorization")+" "+r.Header.Get("Impersonate-User"))
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(r.URL.Path, "/apis/gateway.networking.k8s.io/v1/") {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
			return
		}
		if strings.Contains(string(body), "refused.example.com") {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w,
				`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422, "message": "the webhook says no"}`)
			return
		}
		_, _ = io.WriteString(w,
			`{"kind": "VirtualService", "apiVersion": "networking.istio.io/v1", "metadata": {"name": "web", "namespace": "a"}}`)
	}))
	defer api.Close()
	dir := t.TempDir()
	change := func(host string) string {
		path := filepath.Join(dir, host+".yaml")
		text := "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: a}\nspec: {hosts: [" + host +
			"], http: [{directResponse: {status: 204}}]}\n"
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	mesh := "testdata/mesh"
	try := func(args ...string) (int, string, string) {
		var out, said strings.Builder
		args = append([]string{"diff", mesh, "--server-side", "--server", api.URL, "--insecure-skip-tls-verify", "--token",
			"secret", "--as", "jane", "-o", "name"}, args...)
		return run(t.Context(), args, nil, &out, &said), out.String(), said.String()
	}
	if code, out, said := try("-f", change("taken.example.com"), "--delete", "svc/web.a"); code != diff.ExitDiffers || out != "web-1.a\n" {
		t.Errorf("of what is taken: %d %q %q", code, out, said)
	}
	for _, want := range []string{
		"PATCH /apis/networking.istio.io/v1/namespaces/a/virtualservices/web All Bearer secret jane",
		"DELETE /api/v1/namespaces/a/services/web All Bearer secret jane",
	} {
		if !slices.Contains(asked, want) {
			t.Errorf("the API server was not asked %q, but %q", want, asked)
		}
	}
	code, out, said := try("-f", change("refused.example.com"))
	if code != diff.Broken || out != "" || !strings.Contains(said, "VirtualService a/web: the API server refuses it: the webhook says no") {
		t.Errorf("of what is refused: %d %q %q", code, out, said)
	}
	// The API server has an older version alone of a kind.
	mesh = t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(mesh, "route.yaml"), []byte("apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: TCPRoute\n"+
		"metadata: {name: old, namespace: a}\nspec: {parentRefs: [{name: gw}], rules: [{backendRefs: [{name: web, port: 80}]}]}\n"), 0o600))
	if code, _, said := try("--delete", "tcproute/old.a"); code == diff.Broken {
		t.Errorf("of an older version: %d %q", code, said)
	}
	older := "DELETE /apis/gateway.networking.k8s.io/v1alpha2/namespaces/a/tcproutes/old All Bearer secret jane"
	if !slices.Contains(asked, older) {
		t.Errorf("the API server was not asked %q, but %q", older, asked)
	}
	mesh = "testdata/mesh"
	api.Close()
	if code, _, said := try("-f", change("taken.example.com")); code != diff.Broken ||
		!strings.Contains(said, "--server-side: VirtualService a/web") {
		t.Errorf("without an API server: %d %q", code, said)
	}
}
