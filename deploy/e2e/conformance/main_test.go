package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

const (
	// dirVar is the environment variable with the folder of programs and manifests.
	dirVar = "E2E_CONFORMANCE_DIR"
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
	set, err := binaries.Gather(ctx, dir)
	if err != nil {
		return nil, err
	}
	if _, err := set.Agent(ctx); err != nil {
		return nil, err
	}
	for name, pkg := range map[string]string{
		"contain": "./deploy/e2e/cluster/node/contain/run", "mesh-echo": "./deploy/e2e/conformance/meshecho",
		"echo": "sigs.k8s.io/gateway-api/conformance/echo-basic",
	} {
		if err := binaries.Build(ctx, filepath.Join(dir, name), pkg); err != nil {
			return nil, err
		}
	}
	if istiod := os.Getenv(istiodVar); istiod != "" {
		if err := binaries.Copy(filepath.Join(dir, "istiod"), istiod); err != nil {
			return nil, err
		}
	}
	// Rules identify Envoy's connections by their mark, because all processes have one user.
	wrapper := fmt.Sprintf(`#!/bin/sh
exec /usr/local/bin/envoy.real "$@" --config-yaml \
	'{"cluster_manager":{"upstream_bind_config":{"socket_options":[{"level":1,"name":36,"int_value":%d,"state":"STATE_PREBIND"}]}}}'
`, pods.Mark)
	if err := os.WriteFile(filepath.Join(dir, "envoy.sh"), []byte(wrapper), 0o755); err != nil {
		return nil, err
	}
	found, err := cluster.Find()
	if err != nil {
		return nil, err
	}
	copied, err := found.CopyTo(dir)
	if err != nil {
		return nil, err
	}
	crds, err := cluster.ExperimentalGatewayCRDs(ctx)
	if err != nil {
		return nil, err
	}
	if err := copyManifests(filepath.Join(dir, "crds.yaml"), crds); err != nil {
		return nil, err
	}
	return append(copied.Environ(), dirVar+"="+dir), render(ctx, dir)
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

// render writes the manifests of the charts.
func render(ctx context.Context, dir string) error {
	helms, err := charts.Helms(filepath.Join(dir, "helm"), os.DevNull)
	if err != nil {
		return err
	}
	for _, name := range []string{"base", "istiod"} {
		chart, err := charts.Chart(name)
		if err != nil {
			return err
		}
		args := []string{"template", name, chart, "-n", "istio-system", "--include-crds"}
		if name == "istiod" && os.Getenv(istiodVar) != "" {
			// With all kinds of the Gateway API, and without features that need Istio's own build of Envoy.
			args[2] = os.Getenv(istioChartVar)
			args = append(args, "--set",
				"env.PILOT_ENABLE_ALPHA_GATEWAY_API=true,env.PILOT_ENABLE_METADATA_EXCHANGE=false,env.PILOT_ENABLE_ALPN_FILTER=false,"+
					"telemetry.enabled=false")
		}
		manifests, err := helms[len(helms)-1].Run(ctx, args...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(manifests), 0o644); err != nil {
			return err
		}
	}
	return nil
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
