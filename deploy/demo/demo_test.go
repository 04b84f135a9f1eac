package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"golang.org/x/sys/unix"
)

// withoutVar makes this test binary forbid user namespaces to itself, and become the demo.
const withoutVar = "DEMO_WITHOUT_NAMESPACES"

func TestMain(m *testing.M) {
	if demo := os.Getenv(withoutVar); demo != "" {
		err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
		if err == nil {
			err = syscall.Exec(demo, append([]string{demo}, os.Args[1:]...), os.Environ())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Processes that the demo leaves behind become children of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "istiod-lite-demo-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		programs, err = newKit(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func nobodyLeft(t *testing.T) {
	t.Helper()
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	if !errors.Is(err, syscall.ECHILD) {
		t.Errorf("process %d is left behind (%v)", pid, err)
	}
}

// kit holds the demo and the programs that it runs.
type kit struct {
	binaries.Set
	demo, test string
}

// programs are the binaries under test.
var programs kit

func newKit(dir string) (kit, error) {
	ctx := context.Background()
	set, err := binaries.Gather(ctx, dir)
	k := kit{Set: set, demo: filepath.Join(dir, "demo"), test: filepath.Join(dir, "demo.test")}
	if err == nil {
		_, err = set.Agent(ctx) // beside the control plane, where the demo looks for it
	}
	if err == nil {
		err = binaries.Build(ctx, k.demo, "./deploy/demo")
	}
	if err == nil {
		err = binaries.Copy(k.test, "/proc/self/exe")
	}
	return k, err
}

// users returns the users that the demo must work for: the user of the tests and, if that is root, an ordinary user.
func users() []int {
	if os.Getuid() == 0 {
		return []int{0, 65534}
	}
	return []int{os.Getuid()}
}

// command returns the command that runs the demo as a user.
func (k kit) command(t *testing.T, uid int, args ...string) *exec.Cmd {
	t.Helper()
	tmp, err := os.MkdirTemp(k.Dir, "tmp-")
	must.Succeed(t, err)
	must.Succeed(t, os.Chown(tmp, uid, -1))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, k.demo, append(args, "-envoy", k.Envoy, "-pilot-discovery", k.Pilot)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Dir, cmd.Env = tmp, append(os.Environ(), "TMPDIR="+tmp, "HOME="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if uid != os.Getuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(tmp); !t.Failed() && (err != nil || len(left) > 0) {
			t.Errorf("files are left behind: %v, %v", left, err)
		}
	})
	return cmd
}

func TestTour(t *testing.T) {
	k := programs
	for _, uid := range users() {
		t.Run(fmt.Sprint("user ", uid), func(t *testing.T) {
			check(t, k.command(t, uid, "-requests", "300"), "7 real Envoys",
				"details-v1 is spiffe://cluster.local/ns/bookinfo/sa/details, and takes no call without mutual TLS", "productpage-v1 ", "details-v1 ",
				"ratings-v1 ")
		})
	}
}

// TestWithoutNamespaces runs the demo in a user namespace that forbids others inside.
func TestWithoutNamespaces(t *testing.T) {
	k := programs
	cmd := k.command(t, os.Getuid(), "-requests", "300")
	cmd.Path = k.test
	cmd.Env = append(cmd.Env, withoutVar+"="+k.demo)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	check(t, cmd, "max_user_namespaces is 0", "1 real Envoy ")
}

// check runs the demo, and checks that it prints the texts.
func check(t *testing.T, cmd *exec.Cmd, says ...string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	t.Logf("\n%s", out)
	must.Succeed(t, err)
	for _, s := range append(says, "before, none failed", "while requests are in flight: 90/10 becomes 50/50",
		"were sent meanwhile, none failed", "after, none failed") {
		if !bytes.Contains(out, []byte(s)) {
			t.Errorf("the demo does not say %q", s)
		}
	}
	for _, pod := range []string{"reviews-v1", "reviews-v2"} {
		if n := bytes.Count(out, []byte(pod+" ")); n != 2 {
			t.Errorf("%s stands in %d tables, want 2", pod, n)
		}
	}
	if bytes.Contains(out, []byte("\x1b")) {
		t.Error("colours, but this is no terminal")
	}
	nobodyLeft(t)
}

// TestKilled kills the demo.
func TestKilled(t *testing.T) {
	k := programs
	cmd := exec.CommandContext(t.Context(), k.demo, "-stay", "-envoy", k.Envoy, "-pilot-discovery", k.Pilot)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "are up and configured") {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the demo ended before it was killed")
	}
	// The kernel ends the inner program, which is a child of this process by now.
	var status syscall.WaitStatus
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); errors.Is(err, syscall.ECHILD) {
			return
		}
	}
	t.Error("processes are left behind")
}

// TestMeshThatStaysUp sends requests to a mesh that stays up, from outside of its namespaces, and ends it as Ctrl-C
// does.
func TestMeshThatStaysUp(t *testing.T) {
	k := programs
	for _, uid := range users() {
		t.Run(fmt.Sprint("user ", uid), func(t *testing.T) {
			cmd := k.command(t, uid, "-stay")
			out, err := cmd.StdoutPipe()
			must.Succeed(t, err)
			cmd.Stderr = os.Stderr
			must.Succeed(t, cmd.Start())
			url := regexp.MustCompile(`^ +(?:curl|a browser:) (http://127\.0\.0\.1:\d+\S*)$`)
			command := regexp.MustCompile(`^ +bin/pilot-discovery (.+)$`)
			file := regexp.MustCompile(`^ +edit (\S+): `)
			reached, ran, told := 0, 0, false
			for lines := bufio.NewScanner(out); lines.Scan(); {
				t.Log(lines.Text())
				if m := url.FindStringSubmatch(lines.Text()); m != nil {
					reached++
					if err := get(m[1]); err != nil {
						t.Error(err)
					}
				}
				if m := command.FindStringSubmatch(lines.Text()); m != nil {
					ran++
					if text, err := exec.Command(k.Pilot, strings.Fields(m[1])...).CombinedOutput(); err != nil {
						t.Errorf("%s: %v: %s", m[1], err, text)
					}
				}
				if m := file.FindStringSubmatch(lines.Text()); m != nil {
					if err := os.WriteFile(m[1], []byte("a: b: c\n"), 0o644); err != nil {
						t.Error(err)
					}
				}
				if strings.Contains(lines.Text(), "finding") && !strings.Contains(lines.Text(), "curl") {
					told = true
					if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
						t.Error(err)
					}
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if reached != 3 || ran != 2 || !told {
				t.Errorf(
					"%d addresses to try, want the gateway's and two debug pages'; %d commands, want check and proxy-status; told of the broken file: %v",
					reached, ran, told)
			}
			nobodyLeft(t)
		})
	}
}

func get(url string) error {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || len(body) == 0) {
		err = fmt.Errorf("%s: %s, %d bytes", url, resp.Status, len(body))
	}
	return err
}
