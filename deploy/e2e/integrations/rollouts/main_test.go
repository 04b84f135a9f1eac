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
	program, err := binaries.Tool("argo-rollouts", "ARGO_ROLLOUTS")
	if err != nil {
		return nil, err
	}
	root, err := binaries.ModuleRoot()
	if err != nil {
		return nil, err
	}
	for to, from := range map[string]string{"argo-rollouts": program, "argo-rollouts.yaml": program + ".yaml",
		"web.yaml": sample(root, "web"), "analysis-job.yaml": sample(root, "analysis-job"), "analysis-web.yaml": sample(root, "analysis-web")} {
		if err := binaries.Copy(filepath.Join(dir, to), from); err != nil {
			return nil, err
		}
	}
	return environ, nil
}

func sample(root, name string) string {
	return filepath.Join(root, "deploy", "samples", "rollouts", name+".yaml")
}
