package rollouts

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
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
	program, err := binaries.Program(dir, "argo-rollouts")
	if err != nil {
		return nil, err
	}
	root, err := binaries.ModuleRoot()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"web.yaml", "analysis-job.yaml", "analysis-web.yaml"} {
		if err := binaries.Copy(filepath.Join(dir, name), filepath.Join(root, "deploy", "samples", "rollouts", name)); err != nil {
			return nil, err
		}
	}
	return append(environ, program...), nil
}
