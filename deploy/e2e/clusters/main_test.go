package clusters

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

// Environment variables with the paths of the programs and the CRDs.
const (
	crdsVar  = "E2E_CRDS"
	setsVar  = "E2E_MCS_CRDS"
	envoyVar = "E2E_ENVOY"
	pilotVar = "E2E_PILOT_DISCOVERY"
)

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{Prepare: prepare, Network: func(n *pods.Network) { network = n }})
}

func prepare(ctx context.Context, dir string) ([]string, error) {
	set, err := binaries.Gather(ctx, dir)
	if err != nil {
		return nil, err
	}
	agent, err := set.Agent(ctx)
	if err != nil {
		return nil, err
	}
	found, err := cluster.Find()
	if err != nil {
		return nil, err
	}
	there, err := found.CopyTo(dir)
	if err != nil {
		return nil, err
	}
	root, rootErr := binaries.ModuleRoot()
	crds, sets := filepath.Join(dir, "crds"), filepath.Join(dir, "sets")
	from, setsErr := cluster.MultiClusterCRDs(ctx)
	err = errors.Join(rootErr, setsErr, os.CopyFS(crds, os.DirFS(filepath.Join(root, "charts", "base", "files", "crds"))),
		os.CopyFS(sets, os.DirFS(from)))
	return append(there.Environ(), crdsVar+"="+crds, setsVar+"="+sets,
		envoyVar+"="+set.Envoy, pilotVar+"="+set.Pilot, suite.AgentVar+"="+agent), err
}
