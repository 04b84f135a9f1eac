package clusters

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
)

// How the outer program tells the inner one what it needs.
const (
	asUserVar = "CLUSTERS_TEST_AS_USER"
	crdsVar   = "CLUSTERS_TEST_CRDS"
	envoyVar  = "CLUSTERS_TEST_ENVOY"
	pilotVar  = "CLUSTERS_TEST_PILOT_DISCOVERY"
	// ordinary is the user that root's tests run as.
	ordinary = 65534
)

// network is made once, inside.
var network *pods.Network

// TestMain runs the tests as an ordinary user inside the namespaces of pods.
func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case pods.Inside():
		if network, err = pods.NewNetwork(netip.MustParsePrefix("10.10.0.0/16")); err != nil {
			pods.Refuse(err)
		}
		os.Exit(m.Run())
	case os.Getenv(asUserVar) != "":
		err = pods.Enter(ctx, pods.EnterOptions{Args: os.Args[1:]})
	default:
		err = outside(ctx)
	}
	if err == nil {
		os.Exit(0)
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "clusters:", err)
	}
	os.Exit(1)
}

// outside gathers all that the tests need in a folder that every user can read, and runs them from there.
func outside(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "istiod-lite-clusters-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	set, err := binaries.Gather(ctx, dir)
	if err != nil {
		return err
	}
	found, err := cluster.Find()
	if err != nil {
		return err
	}
	there, err := found.CopyTo(dir)
	if err != nil {
		return err
	}
	root, err := binaries.ModuleRoot()
	if err != nil {
		return err
	}
	user := os.Getuid()
	if user == 0 {
		user = ordinary
	}
	test, crds, tmp := filepath.Join(dir, "clusters.test"), filepath.Join(dir, "crds"), filepath.Join(dir, "tmp")
	err = errors.Join(
		binaries.Copy(test, "/proc/self/exe"), os.CopyFS(crds, os.DirFS(filepath.Join(root, "charts", "base", "files", "crds"))),
		os.Mkdir(tmp, 0o700), os.Chown(tmp, user, -1),
	)
	if err != nil {
		return err
	}
	// The file that this argument names is go test's, where the user cannot write.
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { return strings.HasPrefix(arg, "-test.testlogfile=") })
	cmd := exec.CommandContext(ctx, test, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), there.Environ()...)
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp, "HOME="+tmp, asUserVar+"=yes", crdsVar+"="+crds, envoyVar+"="+set.Envoy, pilotVar+"="+set.Pilot)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if user != os.Getuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd.Run()
}
