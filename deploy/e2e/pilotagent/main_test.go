package pilotagent

import (
	"context"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// agentVar is the environment variable that names the agent's binary.
const agentVar = "E2E_PILOT_AGENT"

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{
		Prepare: func(ctx context.Context, dir string) ([]string, error) {
			environ, err := suite.Programs(ctx, dir)
			if err != nil {
				return nil, err
			}
			agent, err := binaries.Set{Dir: dir}.Agent(ctx)
			return append(environ, agentVar+"="+agent), err
		},
		Network: func(n *pods.Network) { network = n },
	})
}
