package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Options say what to start, and how to end it.
type Options struct {
	Binary string
	Config string // file of the bootstrap
	// Override is YAML or JSON that is merged into the bootstrap. It may be empty.
	Override                 string
	IPv6                     bool // the host has no IPv4 address
	LogLevel, ComponentLevel string
	// Concurrency is the number of worker threads. Zero means one for each processor.
	Concurrency int
	Drain       time.Duration // how long Envoy lets connections end
	// FlushInterval is the time between flushes of log files. The default is one second.
	FlushInterval  time.Duration
	FlushMinSizeKB int // 0 means Envoy's default
	// SkipDeprecatedLogs makes Envoy not log the use of deprecated fields. It needs Envoy 1.34.
	SkipDeprecatedLogs bool
	// CoreDump makes Envoy write a core dump when it crashes.
	CoreDump bool
	Environ  []string

	Admin string // HOST:PORT of the admin API
	// Gateway drains all listeners. Without it only inbound listeners drain, and the listeners of a gateway are
	// outbound.
	Gateway bool
	// Termination is how long Envoy continues to serve after a request to end.
	Termination time.Duration
	// ExitOnZero replaces Termination: Envoy ends when no connection is left, but not before Minimum.
	ExitOnZero bool
	Minimum    time.Duration
	// Ignored are the ports whose connections are not counted, such as the port for probes.
	Ignored []uint16
	// Kill ends Envoy at once when it is closed. It may be nil.
	Kill <-chan struct{}

	Stdout, Stderr io.Writer
	Log            *slog.Logger
}

// stopTimeout is how long a drained Envoy may take to end after SIGTERM.
const stopTimeout = 5 * time.Second

// Exit is the error of an Envoy that exited by itself.
type Exit struct {
	// Code is the exit code of the process, or 128 plus the number of the signal that ended it.
	Code  int
	State string
}

func (e *Exit) Error() string { return "Envoy ended: " + e.State }

// Process is one Envoy process.
type Process struct {
	o     Options
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended

	// drainLock has an element while a request to drain is in progress. It guards draining.
	drainLock chan struct{}
	draining  bool
}

// New checks the options. It starts no process.
func New(o Options) (*Process, error) {
	binary, err := exec.LookPath(o.Binary)
	if err != nil {
		return nil, fmt.Errorf("failed to find Envoy at %q: set binaryPath in ProxyConfig: %w", o.Binary, err)
	}
	o.Binary, o.Log = binary, cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if _, err := os.Stat(o.Config); err != nil {
		return nil, fmt.Errorf("failed to find Envoy's configuration: %w", err)
	}
	p := &Process{o: o, ended: make(chan struct{}), drainLock: make(chan struct{}, 1)}
	p.cmd = exec.CommandContext(context.Background(), o.Binary, o.arguments()...) // it drains after all contexts have ended
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = o.Stdout, o.Stderr, o.Environ
	// Envoy must not continue without the agent. Signals to the agent's process group do not reach Envoy; the agent
	// handles them.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return p, nil
}

func (o *Options) arguments() []string {
	version := "v4"
	if o.IPv6 {
		version = "v6"
	}
	args := []string{
		"-c", o.Config, "--drain-time-s", strconv.Itoa(int(o.Drain / time.Second)), "--drain-strategy", "immediate",
		"--local-address-ip-version", version,
		"--file-flush-interval-msec", strconv.Itoa(int(cmp.Or(o.FlushInterval, time.Second) / time.Millisecond)),
		"--disable-hot-restart", "--allow-unknown-static-fields",
	}
	if o.FlushMinSizeKB > 0 {
		args = append(args, "--file-flush-min-size-kb", strconv.Itoa(o.FlushMinSizeKB))
	}
	if o.LogLevel != "" {
		args = append(args, "-l", o.LogLevel)
	}
	if o.ComponentLevel != "" {
		args = append(args, "--component-log-level", o.ComponentLevel)
	}
	if o.SkipDeprecatedLogs {
		args = append(args, "--skip-deprecated-logs")
	}
	if o.CoreDump {
		args = append(args, "--enable-core-dump")
	}
	if o.Override != "" {
		args = append(args, "--config-yaml", o.Override)
	}
	if o.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(o.Concurrency))
	}
	return args
}

// Run starts Envoy and waits until it ends. When ctx ends, Run drains and ends Envoy and returns nil. If Envoy exits
// by itself, the error is an *Exit.
func (p *Process) Run(ctx context.Context) error {
	started, failed := make(chan struct{}), make(chan error, 1)
	// The kernel ends Envoy when the thread that started it ends.
	safe.Go(p.o.Log, "envoy", func() { p.supervise(started, failed) })
	select {
	case err := <-failed:
		return fmt.Errorf("failed to start %s: %w", p.o.Binary, err)
	case <-started:
	}
	select {
	case <-p.ended:
		return p.exit()
	case <-p.o.Kill:
	case <-ctx.Done():
		p.drainOrKill(context.WithoutCancel(ctx))
		p.linger()
	}
	p.stop()
	return nil
}

// drainOrKill drains Envoy before its end. Kill cancels the request.
func (p *Process) drainOrKill(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	safe.Go(p.o.Log, "drain", func() {
		select {
		case <-p.o.Kill:
			cancel()
		case <-ctx.Done():
		}
	})
	p.drain(ctx, "")
}

// exit returns how Envoy has ended.
func (p *Process) exit() error {
	state := p.cmd.ProcessState
	e := &Exit{Code: state.ExitCode(), State: state.String()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Code = 128 + int(status.Signal())
	}
	return e
}

// linger waits while the drained Envoy continues to serve.
func (p *Process) linger() {
	if !p.o.ExitOnZero {
		p.o.Log.Info("waiting for clients to leave the drained Envoy", "for", p.o.Termination)
		p.sleep(p.o.Termination)
		return
	}
	p.o.Log.Info("waiting until the drained Envoy has no connections", "at_least", p.o.Minimum)
	if !p.sleep(p.o.Minimum) {
		return
	}
	for {
		n, err := p.connections(context.Background())
		switch {
		case err != nil: // unknown: it may have connections
			p.o.Log.Warn("failed to count Envoy's connections", "err", err)
		case n == 0:
			return
		default:
			p.o.Log.Debug("Envoy still has connections", "count", n)
		}
		if !p.sleep(time.Second) {
			return
		}
	}
}

// sleep reports whether d has passed. It returns early when Envoy ends or Kill is closed.
func (p *Process) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ended:
	case <-p.o.Kill:
	}
	return false
}

// stop ends Envoy. It kills Envoy if that takes too long or Kill is closed.
func (p *Process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if p.sleep(stopTimeout) {
		p.o.Log.Warn("killing Envoy, which did not end after SIGTERM", "after", stopTimeout)
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.o.Log.Error("failed to kill Envoy", "err", err)
	}
	<-p.ended
}
