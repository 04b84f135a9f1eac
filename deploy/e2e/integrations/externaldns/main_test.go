package externaldns

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{Prepare: prepare, Network: func(n *pods.Network) { network = n }})
}

// prepare provides the programs and the manifests of the tests.
func prepare(ctx context.Context, dir string) ([]string, error) {
	environ, err := install.Prepare(ctx, dir, install.Chart{})
	if err != nil {
		return nil, err
	}
	if err := install.Render(ctx, dir, "istio-ingress", "gateway",
		install.Chart{Release: "istio-ingress", Namespace: "istio-ingress", Args: []string{"--set", "autoscaling.enabled=false"}}); err != nil {
		return nil, err
	}
	program, err := binaries.Program(dir, "external-dns")
	if err != nil {
		return nil, err
	}
	crds, err := cluster.GatewayCRDs(ctx)
	if err != nil {
		return nil, err
	}
	return append(environ, program...), os.CopyFS(filepath.Join(dir, "gateway-api"), os.DirFS(crds))
}
