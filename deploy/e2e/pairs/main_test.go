//go:build compat

package pairs

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
	agentVar       = "E2E_PILOT_AGENT"
	istioAgentVar  = "E2E_ISTIO_AGENT"
	istioIstiodVar = "E2E_ISTIO_ISTIOD"
	crdsVar        = "E2E_CRDS"
)

// template is the bootstrap template of Istio's agent, beside the program.
const template = "pilot-agent-bootstrap.json"

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{Prepare: prepare, Network: func(n *pods.Network) { network = n }})
}

func prepare(ctx context.Context, dir string) ([]string, error) {
	environ, err := suite.Programs(ctx, dir)
	if err != nil {
		return nil, err
	}
	agent, err := binaries.Set{Dir: dir}.Agent(ctx)
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
	istioAgent, err := binaries.Tool("pilot-agent", "PILOT_AGENT")
	if err != nil {
		return nil, err
	}
	istiod, err := binaries.Tool("istiod", "ISTIOD")
	if err != nil {
		return nil, err
	}
	theirs := filepath.Join(dir, "istio")
	root, rootErr := binaries.ModuleRoot()
	crds := filepath.Join(dir, "crds")
	err = errors.Join(
		rootErr, os.Mkdir(theirs, 0o755), os.CopyFS(crds, os.DirFS(filepath.Join(root, "charts", "base", "files", "crds"))),
		binaries.Copy(filepath.Join(theirs, "pilot-agent"), istioAgent), binaries.Copy(filepath.Join(theirs, "istiod"), istiod),
		binaries.Copy(filepath.Join(theirs, template), filepath.Join(filepath.Dir(istioAgent), template)),
	)
	return append(append(environ, there.Environ()...), agentVar+"="+agent, crdsVar+"="+crds,
		istioAgentVar+"="+filepath.Join(theirs, "pilot-agent"), istioIstiodVar+"="+filepath.Join(theirs, "istiod")), err
}
