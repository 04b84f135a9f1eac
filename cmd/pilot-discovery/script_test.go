package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
)

// scriptPatience is how long a command of a script waits for something that should happen.
const scriptPatience = 2 * time.Minute

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pilot-discovery": main})
}

// TestScripts runs testdata/script/*.txtar. The race detector is left to the tests of the packages that the programs
// consist of: it makes each start of a program slow. CONTRIBUTING.md shows how to write one. Beside the commands of the
// package testscript, a script may use:
//
//	exits CODE ARGS...             run pilot-discovery and check its exit code
//	until REGEXP COMMAND ARGS...   run a command again until its standard output matches
//	serve DIR FLAGS...             start a server of DIR, and wait until it is ready
//	! serve REGEXP DIR FLAGS...    check that a server of DIR does not become ready, and says why
//	stop                           stop the server
//	address FILE KEY               wait for an address file, and set the variable KEY to one of its addresses
//	unready ADDRESS                wait until a server at ADDRESS is no longer ready
func TestScripts(t *testing.T) {
	histories.NoRace(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			s := &server{}
			e.Values[serverKey{}] = s
			e.Defer(s.stop)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"address": address,
			"exits":   exits,
			"serve":   serve,
			"stop":    stop,
			"unready": unready,
			"until":   until,
		},
	})
}

// exits CODE ARGS... runs pilot-discovery and checks its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE ARGS...")
	}
	code := 0
	if err := ts.Exec("pilot-discovery", args[1:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// until REGEXP COMMAND ARGS... runs a command again until its standard output matches.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP COMMAND ARGS...")
	}
	wanted, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for end := time.Now().Add(scriptPatience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if ts.Exec(args[1], args[2:]...) == nil && wanted.MatchString(ts.ReadFile("stdout")) {
			return
		}
	}
	ts.Fatalf("the output never matched %s:\n%s", args[0], ts.ReadFile("stdout"))
}

// address FILE KEY waits for an address file, and sets the variable KEY to the address of that key.
func address(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: address FILE KEY")
	}
	for end := time.Now().Add(scriptPatience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		var all map[string]string
		if err == nil && json.Unmarshal(text, &all) == nil && all[args[1]] != "" {
			ts.Setenv(args[1], all[args[1]])
			return
		}
	}
	ts.Fatalf("no address of %s in %s", args[1], args[0])
}

// unready ADDRESS waits until a server at ADDRESS is no longer ready.
func unready(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: unready ADDRESS")
	}
	for end := time.Now().Add(scriptPatience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		code, _, err := readiness(args[0])
		ts.Check(err) // it goes on listening
		if code == http.StatusServiceUnavailable {
			return
		}
	}
	ts.Fatalf("%s is still ready", args[0])
}

// readiness returns the status and the body of the readiness probe.
func readiness(address string) (int, string, error) {
	resp, err := http.Get("http://" + address + "/ready")
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// server is the server of a script. A script has at most one at a time.
type server struct {
	cmd   *exec.Cmd
	log   *output
	ended chan struct{}
}

type serverKey struct{}

// output is what a process has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// serve DIR FLAGS... starts a server of the directory on free ports of the loopback interface, and waits until it is
// ready. Serving again restarts it. $http, $monitoring and $grpc are its addresses then, and stderr matches its log so
// far.
//
// ! serve REGEXP DIR FLAGS... checks that a server does not become ready: it ends, and its log matches REGEXP, or it
// waits, and the answer of its readiness probe does. What a server logs before it becomes ready is no reason.
func serve(ts *testscript.TestScript, neg bool, args []string) {
	usage := "usage: serve DIR FLAGS..., or ! serve REGEXP DIR FLAGS..."
	var words *regexp.Regexp
	if neg {
		if len(args) < 2 {
			ts.Fatalf("%s", usage)
		}
		var err error
		words, err = regexp.Compile("(?m)" + args[0])
		ts.Check(err)
		args = args[1:]
	}
	if len(args) == 0 {
		ts.Fatalf("%s", usage)
	}
	s := ts.Value(serverKey{}).(*server)
	s.stop()
	ts.Check(s.start(ts, args[0], args[1:]))
	var probe string
	for end := time.Now().Add(scriptPatience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		code, body, err := readiness(ts.Getenv("http"))
		if probe = body; err != nil {
			probe = err.Error()
		}
		ended := s.hasEnded()
		switch {
		case !neg && code == http.StatusOK:
			fmt.Fprint(ts.Stderr(), s.log)
			return
		case !neg && ended:
			ts.Fatalf("the server ended:\n%s", s.log)
		case neg && code == http.StatusOK:
			ts.Fatalf("the server is ready, and should not be:\n%s", s.log)
		case neg && (ended && words.MatchString(s.log.String()) || words.MatchString(probe)):
			fmt.Fprint(ts.Stderr(), s.log, probe)
			s.stop()
			return
		case neg && ended:
			ts.Fatalf("the server ended, and its log does not match %s:\n%s", words, s.log)
		}
	}
	ts.Fatalf("the server is not ready: %s\n%s", probe, s.log)
}

// stop stops the server. stderr matches its whole log then.
func stop(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(serverKey{}).(*server)
	if neg || len(args) > 0 || s.cmd == nil {
		ts.Fatalf("usage: stop, after serve")
	}
	log := s.log
	s.stop()
	fmt.Fprint(ts.Stderr(), log)
}

// start starts the process, and sets the variables http, monitoring and grpc to its addresses.
func (s *server) start(ts *testscript.TestScript, dir string, flags []string) error {
	var ports [3]string
	for i := range ports {
		port, err := freeport.Pick(context.Background(), "127.0.0.1")
		if err != nil {
			return err
		}
		ports[i] = net.JoinHostPort("127.0.0.1", port)
	}
	ts.Setenv("http", ports[0])
	ts.Setenv("monitoring", ports[1])
	ts.Setenv("grpc", ports[2])
	args := []string{
		"discovery", "--configDir", dir, "--httpAddr", ports[0], "--monitoringAddr", ports[1], "--grpcAddr", ports[2],
		"--secureGRPCAddr=", "--httpsAddr=", "--ctrlz_address=",
	}
	s.cmd = exec.Command("pilot-discovery", append(args, flags...)...)
	s.cmd.Path, s.cmd.Err = findProgram(ts.Getenv("PATH"), "pilot-discovery")
	s.cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "TMPDIR"} {
		s.cmd.Env = append(s.cmd.Env, name+"="+ts.Getenv(name))
	}
	for _, v := range env.All() {
		if value := ts.Getenv(v.Name); value != "" {
			s.cmd.Env = append(s.cmd.Env, v.Name+"="+value)
		}
	}
	s.log, s.ended = &output{}, make(chan struct{})
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	cmd, ended := s.cmd, s.ended
	go func() {
		_ = cmd.Wait() // its log tells more
		close(ended)
	}()
	return nil
}

func (s *server) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

func (s *server) stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(scriptPatience):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	s.cmd = nil
}

// findProgram returns the path of a program in the folders of path.
func findProgram(path, name string) (string, error) {
	folders := filepath.SplitList(path)
	i := slices.IndexFunc(folders, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
	if i < 0 {
		return "", exec.ErrNotFound
	}
	return filepath.Join(folders[i], name), nil
}
