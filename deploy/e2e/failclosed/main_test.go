package failclosed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// documentVar is the variable with the path of a copy of the document, which the user of the tests can read.
const documentVar = "E2E_DOCUMENT"

var update = flag.Bool("update", false, "write docs/security/inputs.md")

var network *pods.Network

// launchVar is the variable with the program of a server. With it the test binary becomes that program, without the
// right to read every file.
const launchVar = "E2E_LAUNCH"

func TestMain(m *testing.M) {
	if program := os.Getenv(launchVar); program != "" {
		fmt.Fprintln(os.Stderr, launch(program))
		os.Exit(1)
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil { // they mostly wait
		panic(err)
	}
	suite.Main(m, suite.Options{Prepare: prepare, Network: func(n *pods.Network) { network = n }, Close: stopAPIServer})
}

// launch becomes the program. The user of the tests is root in its namespace, unlike a server in a cluster.
func launch(program string) error {
	for _, right := range []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, right, 0, 0, 0); err != nil {
			return fmt.Errorf("drop a capability: %w", err)
		}
	}
	if err := os.Unsetenv(launchVar); err != nil {
		return err
	}
	return unix.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ())
}

// prepare copies the programs, the custom resources and the document. With the flag it writes the document first.
func prepare(ctx context.Context, dir string) ([]string, error) {
	root, err := binaries.ModuleRoot()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(root, document)
	got, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if *update {
		if got, err = withTable(got); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			return nil, err
		}
	}
	programs, err := binaries.Gather(ctx, dir)
	if err != nil {
		return nil, err
	}
	found, err := cluster.Find()
	if err != nil {
		return nil, err
	}
	there, err := found.CopyTo(dir)
	if err != nil {
		return nil, err
	}
	readable, crds := filepath.Join(dir, filepath.Base(document)), filepath.Join(dir, "crds")
	gateway, err := cluster.ExperimentalGatewayCRDs(ctx)
	if err != nil {
		return nil, err
	}
	err = errors.Join(os.WriteFile(readable, got, 0o644), os.CopyFS(crds, os.DirFS(filepath.Join(root, "charts", "base", "files", "crds"))))
	for _, k := range kinds.All() {
		if k.Group == "gateway.networking.k8s.io" {
			name := k.Group + "_" + k.Plural + ".yaml"
			err = errors.Join(err, binaries.Copy(filepath.Join(crds, name), filepath.Join(gateway, name)))
		}
	}
	return append(there.Environ(), suite.EnvoyVar+"="+programs.Envoy, suite.PilotVar+"="+programs.Pilot, documentVar+"="+readable,
		crdsVar+"="+crds), err
}
