package mtls

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// How the tests are told where the programs are.
const (
	envoyVar  = "E2E_ENVOY"
	oldestVar = "E2E_ENVOY_OLDEST"
	pilotVar  = "E2E_PILOT_DISCOVERY"
	istiodVar = "E2E_ISTIOD" // the manifests of the chart
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
			if err != nil {
				return nil, err
			}
			manifests := filepath.Join(dir, "istiod.yaml")
			return []string{envoyVar + "=" + set.Envoy, oldestVar + "=" + oldest, pilotVar + "=" + set.Pilot, istiodVar + "=" + manifests}, render(ctx, dir, manifests)
		},
		Network: func(n *pods.Network) { network = n },
	})
}

// render writes the manifests of the chart istiod to a file.
func render(ctx context.Context, dir, file string) error {
	helms, err := charts.Helms(filepath.Join(dir, "helm"), os.DevNull)
	if err != nil {
		return err
	}
	chart, err := charts.Chart("istiod")
	if err != nil {
		return err
	}
	manifests, err := helms[len(helms)-1].Run(ctx, "template", "istiod", chart, "-n", "istio-system")
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(manifests), 0o644)
}
