package inforce

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// crdsVar is the environment variable with the folder of the CRDs.
const crdsVar = "E2E_CRDS"

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{Prepare: prepare, Network: func(n *pods.Network) { network = n }})
}

func prepare(ctx context.Context, dir string) ([]string, error) {
	set, err := binaries.Gather(ctx, dir)
	if err != nil {
		return nil, err
	}
	agent, agentErr := set.Agent(ctx)
	found, err := cluster.Find()
	if err = errors.Join(agentErr, err); err != nil {
		return nil, err
	}
	there, err := found.CopyTo(dir)
	if err != nil {
		return nil, err
	}
	root, err := binaries.ModuleRoot()
	crds := filepath.Join(dir, "crds")
	err = errors.Join(err, os.CopyFS(crds, os.DirFS(filepath.Join(root, "charts", "base", "files", "crds"))))
	return append(there.Environ(), crdsVar+"="+crds, suite.EnvoyVar+"="+set.Envoy, suite.PilotVar+"="+set.Pilot,
		suite.AgentVar+"="+agent), err
}
