package spire

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{Prepare: prepare, Network: func(n *pods.Network) { network = n }})
}

// dirVar names the folder of the programs.
const dirVar = "E2E_SPIRE_DIR"

// prepare provides the programs of the tests. Each account has an Envoy of its own path, by which SPIRE knows it.
func prepare(ctx context.Context, dir string) ([]string, error) {
	environ, err := suite.Programs(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, account := range accounts {
		if err := binaries.Copy(envoyOf(dir, account), filepath.Join(dir, "envoy")); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"spire-server", "spire-agent"} {
		more, err := binaries.Program(dir, name)
		if err != nil {
			return nil, err
		}
		environ = append(environ, more...)
	}
	return append(environ, dirVar+"="+dir), nil
}

// envoyOf returns the path of the Envoy of an account.
func envoyOf(dir, account string) string { return filepath.Join(dir, "envoy-"+account) }
