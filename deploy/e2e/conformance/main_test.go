package conformance

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

const (
	// outVar names a folder for the report and the logs.
	outVar = "CONFORMANCE_OUT"
	// whatVar selects the tests.
	whatVar = "CONFORMANCE"
	// istiodVar and istioChartVar name Istio's own istiod and its chart, which then run instead of this control plane.
	istiodVar, istioChartVar = "ISTIOD", "ISTIO_CHART"
)

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{Prepare: prepare, Report: keep, Network: func(n *pods.Network) { network = n }})
}

// prepare provides the files of the tests.
func prepare(ctx context.Context, dir string) ([]string, error) {
	istiod := install.Chart{}
	if path := os.Getenv(istiodVar); path != "" {
		if err := binaries.Copy(filepath.Join(dir, "istiod"), path); err != nil {
			return nil, err
		}
		// With all kinds of the Gateway API, and without features that need Istio's own build of Envoy.
		istiod = install.Chart{Path: os.Getenv(istioChartVar), Args: []string{"--set",
			"env.PILOT_ENABLE_ALPHA_GATEWAY_API=true,env.PILOT_ENABLE_METADATA_EXCHANGE=false,env.PILOT_ENABLE_ALPN_FILTER=false," +
				"telemetry.enabled=false"}}
	}
	environ, err := install.Prepare(ctx, dir, istiod)
	if err != nil {
		return nil, err
	}
	if err := binaries.Build(ctx, filepath.Join(dir, "echo"), "sigs.k8s.io/gateway-api/conformance/echo-basic"); err != nil {
		return nil, err
	}
	crds, err := cluster.ExperimentalGatewayCRDs(ctx)
	if err != nil {
		return nil, err
	}
	return environ, copyManifests(filepath.Join(dir, "crds.yaml"), crds)
}

// copyManifests writes all *.yaml of a folder into one file.
func copyManifests(to, from string) error {
	names, err := filepath.Glob(filepath.Join(from, "gateway.*.yaml"))
	if err != nil {
		return err
	}
	var all []byte
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		all = append(append(all, "\n---\n"...), text...)
	}
	return os.WriteFile(to, all, 0o644)
}

// keep copies the report and the logs to the folder that outVar names.
func keep(users []suite.User) error {
	out := os.Getenv(outVar)
	if out == "" {
		return nil
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, u := range users {
		names, err := filepath.Glob(filepath.Join(u.Dir, "conformance", "*.[ly][oa]*"))
		errs = append(errs, err)
		for _, name := range names {
			errs = append(errs, exec.Command("cp", "-r", name, out).Run())
		}
	}
	return errors.Join(errs...)
}
