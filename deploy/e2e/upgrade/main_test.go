package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{Prepare: prepare, Network: func(n *pods.Network) { network = n }, AtOnce: 1})
}

// shortest is how long certificates of workloads live in these tests.
const shortest = "1m"

// values are values for the charts of both releases: two replicas, and certificates that are renewed all the time.
var values = []string{
	"--set", "autoscaleEnabled=false,replicaCount=2,global.logging.level=default:info",
	"--set", "env.MAX_WORKLOAD_CERT_TTL=" + shortest + ",env.DEFAULT_WORKLOAD_CERT_TTL=" + shortest,
	"--set", "env.CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL=2s",
	"--set", "meshConfig.defaultConfig.proxyMetadata.SECRET_TTL=" + shortest + ",meshConfig.defaultConfig.concurrency=1",
}

// prepare provides the programs of both releases and of istiod, and the manifests.
func prepare(ctx context.Context, dir string) ([]string, error) {
	environ, err := install.Prepare(ctx, dir, install.Chart{Args: values})
	if err != nil {
		return nil, err
	}
	previous, err := release()
	if err != nil {
		return nil, err
	}
	istiod, err := binaries.Tool("istiod", "ISTIOD")
	if err != nil {
		return nil, err
	}
	theirs, err := binaries.Tool("istio-chart", "ISTIO_CHART")
	if err != nil {
		return nil, err
	}
	charts := filepath.Join(previous, "charts")
	// Their images have the tag "previous".
	before := slices.Concat(values, []string{"--set", "tag=previous,global.tag=previous"})
	// Without features that need Istio's own build of Envoy.
	istio := []string{"--set", "autoscaleEnabled=false,telemetry.enabled=false,meshConfig.defaultConfig.concurrency=1",
		"--set", "env.PILOT_ENABLE_METADATA_EXCHANGE=false,env.PILOT_ENABLE_ALPN_FILTER=false"}
	with := func(args []string, more string) []string { return slices.Concat(args, []string{"--set", more}) }
	errs := []error{
		binaries.Copy(filepath.Join(dir, "previous-pilot-discovery"), filepath.Join(previous, "pilot-discovery")),
		binaries.Copy(filepath.Join(dir, "previous-pilot-agent"), filepath.Join(previous, "pilot-agent")),
		binaries.Copy(filepath.Join(dir, "istiod"), istiod),
		install.Render(ctx, dir, "previous-base", "base", install.Chart{Path: filepath.Join(charts, "base")}),
	}
	for _, revision := range []string{"lite", "back"} {
		errs = append(errs, install.Render(ctx, dir, "base-"+revision, "base",
			install.Chart{Args: []string{"--set", "defaultRevision=" + revision}}))
	}
	lite := []string{"--set", "autoscaleEnabled=false,meshConfig.defaultConfig.concurrency=1"}
	old := filepath.Join(charts, "istiod")
	for name, c := range map[string]install.Chart{
		"previous":     {Path: old, Args: before},
		"blue-stable":  {Release: "blue", Path: old, Args: with(before, "revision=blue,revisionTags={stable}")},
		"blue":         {Release: "blue", Path: old, Args: with(before, "revision=blue")},
		"green":        {Release: "green", Args: with(values, "revision=green")},
		"green-stable": {Release: "green", Args: with(values, "revision=green,revisionTags={stable}")},
		"istio":        {Path: theirs, Args: istio},
		"istio-back":   {Path: theirs, Args: with(istio, "revision=back")},
		"lite":         {Release: "istiod-lite", Args: with(lite, "revision=lite")},
	} {
		errs = append(errs, install.Render(ctx, dir, name, "istiod", c))
	}
	return environ, errors.Join(errs...)
}

// release returns the folder of the release before: its programs and charts.
func release() (string, error) {
	dir, err := binaries.Tool("previous", "PREVIOUS")
	if err != nil {
		return "", fmt.Errorf("deploy/tools/previous.sh builds the release before: %w", err)
	}
	if os.Getenv("PREVIOUS") != "" {
		return dir, nil
	}
	want, err := os.ReadFile("previous.txt")
	if err != nil {
		return "", err
	}
	if have, err := os.ReadFile(filepath.Join(dir, "release")); err != nil || string(have) != string(want) {
		return "", fmt.Errorf("%s is the release %q, and previous.txt names %q: run deploy/tools/previous.sh", dir, have, want)
	}
	return filepath.EvalSymlinks(dir)
}
