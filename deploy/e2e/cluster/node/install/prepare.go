package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
)

// DirVar is the environment variable with the folder of programs and manifests.
const DirVar = "E2E_NODE_DIR"

// Chart says how to render the chart of the control plane.
type Chart struct {
	Release   string   // by default the name of the chart
	Namespace string   // by default istio-system
	Path      string   // by default the folder of the chart in this tree
	Args      []string // more arguments for Helm
}

// Prepare writes programs and manifests to a folder that all users can read, and returns the environment with which
// Start finds them.
func Prepare(ctx context.Context, dir string, istiod Chart) ([]string, error) {
	set, err := binaries.Gather(ctx, dir)
	if err != nil {
		return nil, err
	}
	if _, err := set.Agent(ctx); err != nil {
		return nil, err
	}
	for name, pkg := range map[string]string{
		"contain": "./deploy/e2e/cluster/node/contain/run", "mesh-echo": "./deploy/e2e/conformance/meshecho",
	} {
		if err := binaries.Build(ctx, filepath.Join(dir, name), pkg); err != nil {
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
	return append(copied.Environ(), DirVar+"="+dir),
		errors.Join(Render(ctx, dir, "base", "base", Chart{}), Render(ctx, dir, "istiod", "istiod", istiod))
}

// Render writes the manifests of a chart, such as istiod, to NAME.yaml in the folder.
func Render(ctx context.Context, dir, name, chart string, how Chart) error {
	helms, err := charts.Helms(filepath.Join(dir, "helm"), os.DevNull)
	if err != nil {
		return err
	}
	ours, err := charts.Chart(chart)
	if err != nil {
		return err
	}
	args := []string{"template", cmp.Or(how.Release, chart), cmp.Or(how.Path, ours), "-n", cmp.Or(how.Namespace, Namespace),
		"--include-crds", "--skip-tests"}
	manifests, err := helms[len(helms)-1].Run(ctx, append(args, how.Args...)...)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(manifests), 0o644)
}
