package mtls

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// istiodVar is the environment variable that names the file with the manifests of the chart istiod.
const istiodVar = "E2E_ISTIOD"

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{
		Prepare: func(ctx context.Context, dir string) ([]string, error) {
			environ, err := suite.Programs(ctx, dir)
			if err != nil {
				return nil, err
			}
			manifests := filepath.Join(dir, "istiod.yaml")
			return append(environ, istiodVar+"="+manifests), render(ctx, dir, manifests)
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
