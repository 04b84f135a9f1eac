package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
)

const (
	asUserVar = "CLUSTER_TEST_AS_USER"
	crdsVar   = "CLUSTER_TEST_CRDS"
	// ordinary is the user that root's tests run as.
	ordinary = 65534
)

// TestMain runs the tests as an ordinary user inside the namespaces of pods, which asks the most of a cluster: no root, no route to anywhere.
func TestMain(m *testing.M) {
	var err error
	switch {
	case pods.Inside():
		if _, err = pods.NewNetwork(netip.MustParsePrefix("10.10.0.0/16")); err != nil {
			pods.Refuse(err)
		}
		os.Exit(m.Run())
	case os.Getenv(asUserVar) != "":
		err = pods.Enter(context.Background(), pods.EnterOptions{Args: os.Args[1:]})
	default:
		err = outside()
	}
	if err == nil {
		return
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

func outside() error {
	dir, err := os.MkdirTemp("", "istiod-lite-cluster-test-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	found, err := Find()
	if err != nil {
		return err
	}
	there, err := found.CopyTo(dir)
	if err != nil {
		return err
	}
	crds, err := IstioCRDs(context.Background())
	if err != nil {
		return err
	}
	test, crdsCopy, tmp := filepath.Join(dir, "cluster.test"), filepath.Join(dir, "crds.yaml"), filepath.Join(dir, "tmp")
	user := os.Getuid()
	if user == 0 {
		user = ordinary
	}
	err = errors.Join(binaries.Copy(test, "/proc/self/exe"), binaries.Copy(crdsCopy, crds), os.Mkdir(tmp, 0o700), os.Chown(tmp, user, -1), os.Chmod(dir, 0o755))
	if err != nil {
		return err
	}
	var args []string
	for _, arg := range os.Args[1:] {
		if !strings.HasPrefix(arg, "-test.testlogfile=") { // that file is go test's, where the user cannot write
			args = append(args, arg)
		}
	}
	cmd := exec.Command(test, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), append(there.Environ(), "TMPDIR="+tmp, "HOME="+tmp, asUserVar+"=yes", crdsVar+"="+crdsCopy)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if user != os.Getuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}
	}
	return cmd.Run()
}
