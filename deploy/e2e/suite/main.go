package suite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/istiod-lite/istiod-lite/deploy/compat"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
)

// userVar is set for a test binary that runs as the user of the tests and must enter namespaces.
const userVar = "E2E_USER"

// ordinary is the user that root's tests run as.
const ordinary = 65534

// Options are options of Main.
type Options struct {
	// Prepare writes files for the tests to a folder that all users can read, and returns the environment with which the
	// tests find them.
	Prepare func(ctx context.Context, dir string) (environ []string, err error)
	// AsRoot runs the tests as root too, if root starts them without -short.
	AsRoot bool
	// Report is called with the users and their temporary folders after all tests. Optional.
	Report func(users []User) error
	// Network is called with the network of the pods before the tests run. The tests of a process share it, one after the
	// other.
	Network func(*pods.Network)
	// Close is called in each process of tests when they have ended. Optional.
	Close func()
	// AtOnce is how many tests run at the same time, each in its own process and namespaces. 0 means that all run in one
	// process.
	AtOnce int
}

// User is a user whose tests ran.
type User struct {
	ID  int
	Dir string // $TMPDIR of the tests
}

// Main runs the tests inside the namespaces of pods as an ordinary user, which is the harder case: without root, and
// without a route to other networks. Then it checks the rows of package compat that they made. It does not return.
func Main(m *testing.M, o Options) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	flag.Parse()
	var err error
	switch {
	case flag.Lookup("test.list").Value.String() != "":
		os.Exit(m.Run())
	case pods.Inside():
		network, err := pods.NewNetwork(netip.MustParsePrefix("10.10.0.0/16"))
		if err != nil {
			pods.Refuse(err)
		}
		o.Network(network)
		code := m.Run()
		if o.Close != nil {
			o.Close()
		}
		os.Exit(code)
	case os.Getenv(userVar) != "":
		err = pods.Enter(ctx, pods.EnterOptions{Args: os.Args[1:]})
	default:
		err = o.outside(ctx)
	}
	if err == nil {
		os.Exit(0)
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || os.Getenv(userVar) == "" {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	os.Exit(1)
}

// outside runs the tests of all users at the same time, because they mostly wait. It prints the output of the first
// user's tests at once, and then the output of the others.
func (o Options) outside(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "istiod-lite-e2e-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	environ, err := o.Prepare(ctx, dir)
	if err != nil {
		return err
	}
	test := filepath.Join(dir, "e2e.test")
	if err := errors.Join(os.Chmod(dir, 0o755), binaries.Copy(test, "/proc/self/exe")); err != nil {
		return err
	}
	ids := []int{os.Getuid()}
	if os.Getuid() == 0 {
		ids = []int{ordinary}
		if o.AsRoot && !testing.Short() {
			ids = []int{0, ordinary}
		}
	}
	users, said, errs := make([]User, len(ids)), make([]bytes.Buffer, len(ids)), make([]error, len(ids))
	var running sync.WaitGroup
	for i, id := range ids {
		users[i] = User{id, filepath.Join(dir, fmt.Sprint("tmp-", id))}
		var to io.Writer = &said[i]
		if i == 0 {
			to = os.Stdout
		}
		running.Go(func() {
			if err := users[i].run(ctx, to, test, environ, o.AtOnce); err != nil {
				errs[i] = fmt.Errorf("as user %d: %w", id, err)
			}
		})
	}
	running.Wait()
	for i := range said {
		_, err := said[i].WriteTo(os.Stdout)
		errs = append(errs, err, compat.CheckRows(users[i].rows()))
	}
	if o.Report != nil {
		errs = append(errs, o.Report(users))
	}
	return errors.Join(errs...)
}

// rows returns the file for the rows of package compat.
func (u User) rows() string { return filepath.Join(u.Dir, "compat-rows") }

// run runs the tests as the user, and writes their output.
func (u User) run(ctx context.Context, to io.Writer, test string, environ []string, atOnce int) error {
	if err := os.Mkdir(u.Dir, 0o700); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := os.Chown(u.Dir, u.ID, -1); err != nil {
		return fmt.Errorf("hand over a folder: %w", err)
	}
	fmt.Fprintf(to, "=== user %d\n", u.ID)
	command := func(to io.Writer, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, test, slices.Concat(testArgs(), args)...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Dir(test), to, to
		cmd.Env = slices.Concat(os.Environ(), environ, []string{
			"TMPDIR=" + u.Dir, "HOME=" + u.Dir, fmt.Sprint(userVar, "=", u.ID), compat.RowsVar + "=" + u.rows(),
		})
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if u.ID != os.Getuid() {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(u.ID), Gid: uint32(u.ID)}
		}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		return cmd
	}
	if atOnce == 0 {
		return command(to).Run()
	}
	// A pattern for subtests selects their top-level tests, and is also passed to them.
	pattern, sub, isSub := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	list, err := exec.CommandContext(ctx, test, "-test.list="+cmp.Or(pattern, ".")).Output()
	if err != nil {
		return fmt.Errorf("list the tests: %w", err)
	}
	// The output of a test is written when it has ended, so that tests do not mix.
	var all errgroup.Group
	var mu sync.Mutex
	all.SetLimit(atOnce)
	for name := range strings.Lines(string(list)) {
		run := "-test.run=^" + strings.TrimSpace(name) + "$"
		if isSub {
			run += "/" + sub
		}
		all.Go(func() error {
			var out bytes.Buffer
			err := command(&out, run).Run()
			mu.Lock()
			defer mu.Unlock()
			_, _ = out.WriteTo(to)
			return err
		})
	}
	return all.Wait()
}

// testArgs returns the arguments of this test binary, except arguments that make it write files where other users
// cannot.
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
