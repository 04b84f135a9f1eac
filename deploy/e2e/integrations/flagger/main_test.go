package flagger

import (
	"context"
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
	for _, name := range []string{"flagger", "prometheus"} {
		program, err := binaries.Program(dir, name)
		if err != nil {
			return nil, err
		}
		environ = append(environ, program...)
	}
	return environ, nil
}
