package e2e

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
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
)

// How the outer program tells the inner one what it needs.
const (
	userVar    = "E2E_USER"
	envoyVar   = "E2E_ENVOY"
	pilotVar   = "E2E_PILOT_DISCOVERY"
	resultsVar = "E2E_RESULTS"
)

// ordinary is the user that root's tests run as a second time.
const ordinary = 65534

// network is made once, inside: the tests of one process run one after the other on it.
var network *pods.Network

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
	case os.Getenv(userVar) != "":
		err = pods.Enter(ctx, pods.EnterOptions{Args: os.Args[1:]})
	default:
		err = outside(ctx)
	}
	if err == nil {
		os.Exit(0)
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || os.Getenv(userVar) == "" {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	os.Exit(1)
}

// outside runs the tests once for each user, and prints the matrix of all of them.
func outside(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "istiod-lite-e2e-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	s, err := prepare(ctx, dir)
	if err != nil {
		return err
	}
	var errs []error
	users := []int{os.Getuid()}
	if os.Getuid() == 0 {
		users = append(users, ordinary)
	}
	for _, uid := range users {
		if err := s.runAs(ctx, uid); err != nil {
			errs = append(errs, fmt.Errorf("as user %d: %w", uid, err))
		}
	}
	errs = append(errs, s.report(users))
	return errors.Join(errs...)
}

// setup is what every user's run needs, in a folder that every user can read.
type setup struct {
	binaries.Set
	test string
}

func prepare(ctx context.Context, dir string) (setup, error) {
	set, err := binaries.Gather(ctx, dir)
	if err != nil {
		return setup{}, err
	}
	s := setup{Set: set, test: filepath.Join(dir, "e2e.test")}
	return s, binaries.Copy(s.test, "/proc/self/exe")
}

// runAs runs the tests inside namespaces as the user.
func (s setup) runAs(ctx context.Context, uid int) error {
	tmp := filepath.Join(s.Dir, fmt.Sprint("tmp-", uid))
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := os.Chown(tmp, uid, -1); err != nil {
		return fmt.Errorf("hand over a folder: %w", err)
	}
	cmd := exec.CommandContext(ctx, s.test, testArgs()...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "HOME="+tmp, envoyVar+"="+s.Envoy, pilotVar+"="+s.Pilot, resultsVar+"="+tmp, fmt.Sprint(userVar, "=", uid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if uid != os.Getuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	fmt.Printf("=== user %d\n", uid)
	return cmd.Run()
}

// testArgs are the arguments of this test binary without those by which go test has it write files where other users cannot.
func testArgs() []string {
	return slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool {
		for _, mine := range []string{"-test.testlogfile=", "-test.coverprofile=", "-test.gocoverdir="} {
			if strings.HasPrefix(arg, mine) {
				return true
			}
		}
		return false
	})
}
