package envoy

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// script makes a program that stands in for Envoy. It first writes its arguments.
func script(t *testing.T, body string, change func(*Options)) (p *Process, dir string) {
	t.Helper()
	dir = t.TempDir()
	binary, config := filepath.Join(dir, "envoy"), filepath.Join(dir, "envoy.json")
	text := "#!/bin/sh\ncd " + dir + "\nfor a in \"$@\"; do echo \"$a\"; done >args.new; mv args.new args\n" + body + "\n"
	for name, content := range map[string]string{binary: text, config: "{}"} {
		must.Succeed(t, os.WriteFile(name, []byte(content), 0o755))
	}
	o := Options{Binary: binary, Config: config, Drain: 45 * time.Second, Admin: "127.0.0.1:1", Environ: os.Environ(), Stdout: os.Stderr,
		Stderr: os.Stderr}
	if change != nil {
		change(&o)
	}
	p, err := New(o)
	must.Succeed(t, err)
	return p, dir
}

// run calls fn in the background. end cancels its context. ended waits for it and returns its error.
func run(t *testing.T, fn func(context.Context) error) (end, ended func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- fn(ctx) }()
	return cancel, func() {
		t.Helper()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// appears waits for a file and returns its lines.
func appears(t *testing.T, name string) []string {
	t.Helper()
	for {
		text, err := os.ReadFile(name)
		if err == nil {
			return strings.Split(strings.TrimSpace(string(text)), "\n")
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestArguments(t *testing.T) {
	p, dir := script(t, "exit 0", func(o *Options) {
		o.LogLevel, o.ComponentLevel, o.Concurrency, o.Override, o.FlushMinSizeKB, o.SkipDeprecatedLogs = "info", "misc:error", 3,
			"{admin: {}}", 12, true
	})
	var e *Exit
	if err := p.Run(t.Context()); !errors.As(err, &e) || e.Code != 0 {
		t.Errorf("%v, want an exit with 0", err)
	}
	want := []string{
		"-c", filepath.Join(dir, "envoy.json"), "--drain-time-s", "45", "--drain-strategy", "immediate", "--local-address-ip-version", "v4",
		"--file-flush-interval-msec", "1000", "--disable-hot-restart", "--allow-unknown-static-fields", "--file-flush-min-size-kb", "12",
		"-l", "info", "--component-log-level", "misc:error", "--skip-deprecated-logs", "--config-yaml", "{admin: {}}", "--concurrency", "3",
	}
	if got := appears(t, filepath.Join(dir, "args")); !slices.Equal(got, want) {
		t.Errorf("arguments %q, want %q", got, want)
	}
}

func TestExitCodes(t *testing.T) {
	for body, want := range map[string]int{"exit 7": 7, "kill -9 $$": 137, "kill -11 $$": 139} {
		p, _ := script(t, body, nil)
		var e *Exit
		if err := p.Run(t.Context()); !errors.As(err, &e) || e.Code != want {
			t.Errorf("%s: %v, want an exit with %d", body, err, want)
		}
	}
	if _, err := New(Options{Binary: "/no/envoy"}); err == nil || !strings.Contains(err.Error(), "binaryPath") {
		t.Errorf("without a binary: %v", err)
	}
}

// until is a script that ends on a signal once the file trapped exists. The shell must not sleep in one piece, or the
// trap would be delayed.
const until = "trap 'echo term >ended; exit 0' TERM\necho >trapped\nwhile :; do sleep 0.02; done"

// admin is a fake of Envoy's admin API.
type admin struct {
	drains atomic.Int64
	busy   atomic.Int64 // number of requests to drain that fail
	mu     sync.Mutex
	how    string // query of the request to drain
	counts []int  // numbers of connections, one for each request; the last is repeated
}

func (a *admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/drain_listeners":
		if a.busy.Add(-1) >= 0 {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		a.drains.Add(1)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.how = r.URL.RawQuery
	case r.URL.Path == "/stats":
		a.mu.Lock()
		defer a.mu.Unlock()
		fmt.Fprintf(w, "listener.0.0.0.0_15006.downstream_cx_active: %d\n"+
			"listener.0.0.0.0_15021.downstream_cx_active: 9\nlistener.admin.downstream_cx_active: 1\n", a.counts[0])
		if len(a.counts) > 1 {
			a.counts = a.counts[1:]
		}
	default:
		http.Error(w, "unknown", http.StatusNotFound)
	}
}

// TestDrain checks that Envoy drains once before it gets SIGTERM, also if connections end early, and if a pod's hook
// failed to drain it.
func TestDrain(t *testing.T) {
	how := map[string]string{"after a failure": "graceful&inboundonly", "of a gateway": "graceful&skip_exit"}
	for name, change := range map[string]func(*Options){
		"of a gateway":        func(o *Options) { o.Gateway, o.Termination = true, 10*time.Millisecond },
		"for a while":         func(o *Options) { o.Termination = 10 * time.Millisecond },
		"until none are left": func(o *Options) { o.ExitOnZero, o.Termination = true, time.Hour },
		"after a failure":     func(o *Options) { o.Termination = 10 * time.Millisecond },
	} {
		a := &admin{counts: []int{2, 0}}
		if name == "after a failure" {
			a.busy.Store(1)
		}
		server := httptest.NewServer(a)
		p, dir := script(t, until, func(o *Options) {
			o.Admin, o.Ignored = server.Listener.Addr().String(), []uint16{15021}
			change(o)
		})
		end, ended := run(t, p.Run)
		appears(t, filepath.Join(dir, "trapped"))
		p.Drain(t.Context()) // as a pod's hook does
		end()
		ended()
		appears(t, filepath.Join(dir, "ended"))
		if n := a.drains.Load(); n != 1 {
			t.Errorf("%s: drained %d times", name, n)
		}
		if want := cmp.Or(how[name], "graceful&inboundonly&skip_exit"); a.how != want {
			t.Errorf("%s: asked for %s, want %s", name, a.how, want)
		}
		if len(a.counts) != 1 && strings.HasPrefix(name, "until") {
			t.Errorf("%s: ended while connections were left", name)
		}
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	}
}

// TestKill checks that a second signal ends Envoy at once, even if Envoy ignores SIGTERM.
func TestKill(t *testing.T) {
	kill := make(chan struct{})
	p, dir := script(t, "trap '' TERM\necho >trapped\nwhile :; do sleep 0.02; done",
		func(o *Options) { o.Kill, o.Termination = kill, time.Hour })
	end, ended := run(t, p.Run)
	appears(t, filepath.Join(dir, "trapped"))
	end()
	close(kill)
	ended()
}

// TestKillWhileAsked checks that a second signal is handled while the admin API does not respond.
func TestKillWhileAsked(t *testing.T) {
	asked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	defer server.Close()
	kill := make(chan struct{})
	log := &bytes.Buffer{}
	p, dir := script(t, until, func(o *Options) {
		o.Kill, o.Termination, o.Admin, o.Log = kill, time.Hour, server.Listener.Addr().String(), slog.New(slog.NewTextHandler(log, nil))
	})
	end, ended := run(t, p.Run)
	appears(t, filepath.Join(dir, "trapped"))
	end()
	<-asked
	close(kill)
	ended()
	if !strings.Contains(log.String(), "context canceled") {
		t.Errorf("logged: %s", log)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestEnvoyEndsWhileItDrains checks that Run does not wait for an Envoy that has exited.
func TestEnvoyEndsWhileItDrains(t *testing.T) {
	p, dir := script(t, "while [ ! -e go ]; do sleep 0.02; done", func(o *Options) { o.Termination = time.Hour })
	end, ended := run(t, p.Run)
	appears(t, filepath.Join(dir, "args"))
	end()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	ended()
}

func TestCount(t *testing.T) {
	p := &Process{o: Options{Ignored: []uint16{15021, 15090}}}
	text := "listener.0.0.0.0_15006.downstream_cx_active: 3\nlistener.[__]_8080.downstream_cx_active: 4\n" +
		"listener.0.0.0.0_15090.downstream_cx_active: 5\nhttp.x.downstream_cx_active: 6\n" +
		"listener.admin.downstream_cx_active: 7\nlistener.0.0.0.0_15006.worker_0.downstream_cx_active: 3\n"
	text += "listener.envoy_internal_connect_originate.downstream_cx_active: 2\n"
	if n, err := p.count(bufio.NewScanner(strings.NewReader(text))); n != 7 || err != nil {
		t.Errorf("%d connections, %v, want 7", n, err)
	}
	if n, err := p.count(bufio.NewScanner(strings.NewReader("listener.0.0.0.0_15006.downstream_cx_total: 3\n"))); err == nil {
		t.Errorf("metrics that say nothing are %d connections", n)
	}
}

// TestReap checks that an ended child is collected when it is found for the second time, so that code which waits for
// it can do so first.
func TestReap(t *testing.T) {
	must.Succeed(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	log := slog.New(slog.DiscardHandler)
	cmd := exec.CommandContext(t.Context(), "/bin/true")
	must.Succeed(t, cmd.Start())
	for !slices.Contains(ended(), cmd.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
	if seen := reap(log, nil); !seen[cmd.Process.Pid] {
		t.Errorf("the child is not among %v", seen)
	}
	must.Succeed(t, cmd.Wait()) // fails for a collected child

	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "sleep 0.1 >/dev/null 2>&1 & echo $!").Output()
	must.Succeed(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	must.Succeed(t, err)
	end, stopped := run(t, func(ctx context.Context) error { return Reap(ctx, log, time.Millisecond) })
	for syscall.Kill(pid, 0) == nil { // a process that was not collected can still be signaled
		time.Sleep(5 * time.Millisecond)
	}
	end()
	stopped()
}
