//go:build compat

package pages

import (
	"context"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/compat"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var keep = flag.String("keep", "", "a folder for what istiod answers; empty: it is not kept")

// networks are in the mesh, as istiod's page of collections answers with an error otherwise.
const networks = "networks: {near: {endpoints: [{fromRegistry: Kubernetes}], gateways: [{address: 192.0.2.99, port: 15443}]}}\n"

// TestPagesAsIstiod reads the pages of the real istiod about the same objects: they have the recorded keys.
// COMPAT_UPDATE=1 records them.
func TestPagesAsIstiod(t *testing.T) {
	ctx, c := installed.CRDs(t, cluster.Options{})
	world, err := os.ReadFile(worldFile)
	must.Succeed(t, err)
	must.Succeed(t, c.Apply(ctx, world))
	grpc, monitoring := istiod(t, ctx, c.Kubeconfig())
	connect(t, grpc)
	connect(t, grpc) // now istiod has cached the resources of the first one
	theirs := paths{}
	for _, page := range asked() {
		resp, err := http.Get("http://" + monitoring + "/debug/" + page)
		must.Succeed(t, err)
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil {
			err = theirs.collect(page, text)
		}
		if err != nil {
			t.Errorf("%s %v", page, err)
		}
		if *keep != "" {
			_ = os.WriteFile(filepath.Join(*keep, page), text, 0o600)
		}
	}
	text := "# Made by COMPAT_UPDATE=1 make compat: the keys of istiod 1.31's debug pages about world.yaml, and the types of their values.\n" +
		theirs.String()
	if os.Getenv(compat.Update) != "" {
		must.Succeed(t, os.WriteFile(recordedFile, []byte(text), 0o644))
		return
	}
	recorded, err := os.ReadFile(recordedFile)
	if err != nil || string(recorded) != text {
		t.Errorf("%s is not what istiod has: %v; it has\n%s", recordedFile, err, text)
	}
}

// istiod starts the real one, and returns where it serves ADS and pages.
func istiod(t *testing.T, ctx context.Context, kubeconfig string) (grpc, monitoring string) {
	t.Helper()
	program, err := binaries.Tool("istiod", "ISTIOD")
	must.Succeed(t, err)
	dir := t.TempDir()
	mesh, err := filepath.Abs(meshFile)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "networks.yaml"), []byte(networks), 0o600))
	at := installed.Peer{Program: program, Kubeconfig: kubeconfig,
		Args: []string{"--meshConfig", mesh, "--networksConfig", filepath.Join(dir, "networks.yaml")}}.Start(ctx, t)
	return at["grpcAddr"], at["monitoringAddr"]
}
