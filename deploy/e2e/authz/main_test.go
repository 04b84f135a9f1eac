package authz

import (
	"context"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// How the tests are told where the programs are.
const (
	envoyVar  = "E2E_ENVOY"
	oldestVar = "E2E_ENVOY_OLDEST"
	pilotVar  = "E2E_PILOT_DISCOVERY"
)

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{
		Prepare: func(ctx context.Context, dir string) ([]string, error) {
			set, err := binaries.Gather(ctx, dir)
			if err != nil {
				return nil, err
			}
			oldest, err := set.OldestEnvoy()
			return []string{envoyVar + "=" + set.Envoy, oldestVar + "=" + oldest, pilotVar + "=" + set.Pilot}, err
		},
		Network: func(n *pods.Network) { network = n },
	})
}
