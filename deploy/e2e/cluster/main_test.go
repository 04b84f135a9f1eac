package cluster

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

const crdsVar = "E2E_CRDS"

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{Prepare: prepare, Network: func(*pods.Network) {}})
}

func prepare(ctx context.Context, dir string) ([]string, error) {
	found, err := Find()
	if err != nil {
		return nil, err
	}
	there, err := found.CopyTo(dir)
	if err != nil {
		return nil, err
	}
	crds, err := IstioCRDs(ctx)
	if err != nil {
		return nil, err
	}
	to := filepath.Join(dir, "crds.yaml")
	return append(there.Environ(), crdsVar+"="+to), binaries.Copy(to, crds)
}
