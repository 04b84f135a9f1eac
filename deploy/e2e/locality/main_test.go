package locality

import (
	"context"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// How the tests are told where the programs are.
const (
	envoyVar = "E2E_ENVOY"
	pilotVar = "E2E_PILOT_DISCOVERY"
)

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{
		Prepare: func(ctx context.Context, dir string) ([]string, error) {
			set, err := binaries.Gather(ctx, dir)
			return []string{envoyVar + "=" + set.Envoy, pilotVar + "=" + set.Pilot}, err
		},
		Network: func(n *pods.Network) { network = n },
	})
}
