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

// Options say what to start, and how it is ended.
type Options struct {
	Binary                   string
	Config                   string // the file of the bootstrap
	Override                 string // YAML or JSON that is laid over it; empty: none
	IPv6                     bool   // the host has no IPv4 address
	LogLevel, ComponentLevel string
	Concurrency              int           // workers; 0: one for each processor
	Drain                    time.Duration // how long Envoy lets connections end
	FlushInterval            time.Duration // of its files; 0: a second
	FlushMinSizeKB           int           // 0: Envoy's default
	SkipDeprecatedLogs       bool          // Envoy does not log deprecated fields; from release 1.34 on
	Environ                  []string

	Admin string // HOST:PORT of the admin API
	// Gateway has all listeners drain: those of a gateway count as outbound.
	Gateway bool
	// Termination is how long Envoy serves on after it was asked to end.
	Termination time.Duration
	// ExitOnZero ends it as soon as no connection is left instead, but not before Minimum.
	ExitOnZero bool
	Minimum    time.Duration
	// Ignored are the ports whose connections do not count, such as that of probes.
	Ignored []uint16
	// Kill ends Envoy at once when it is closed; nil: nothing does.
	Kill <-chan struct{}

	Stdout, Stderr io.Writer
	Log            *slog.Logger
}

// stopTimeout is how long an Envoy that was drained has to end after SIGTERM.
const stopTimeout = 5 * time.Second

// Exit is the error of an Envoy that ended by itself.
type Exit struct {
	// Code is that of the process: 128 and the signal, if a signal ended it.
	Code  int
	State string
}

func (e *Exit) Error() string { return "Envoy ended: " + e.State }

// Process is one Envoy.
type Process struct {
	o     Options
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended

	asking chan struct{} // has an entry while Envoy is asked to drain
	drains bool          // owned by who asks
}

// New checks the options. It starts nothing.
func New(o Options) (*Process, error) {
	binary, err := exec.LookPath(o.Binary)
	if err != nil {
		return nil, fmt.Errorf("no Envoy at %q: set binaryPath in ProxyConfig: %w", o.Binary, err)
	}
	o.Binary, o.Log = binary, cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if _, err := os.Stat(o.Config); err != nil {
		return nil, fmt.Errorf("Envoy's configuration: %w", err)
	}
	p := &Process{o: o, ended: make(chan struct{}), asking: make(chan struct{}, 1)}
	p.cmd = exec.CommandContext(context.Background(), o.Binary, o.arguments()...) // it outlives every context, to drain
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = o.Stdout, o.Stderr, o.Environ
	// Envoy must not serve on alone, and signals to the agent's group are for the agent to pass on.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return p, nil
}

func (o *Options) arguments() []string {
	version := "v4"
	if o.IPv6 {
		version = "v6"
	}
	args := []string{
		"-c", o.Config, "--drain-time-s", strconv.Itoa(int(o.Drain / time.Second)), "--drain-strategy", "immediate", "--local-address-ip-version", version,
		"--file-flush-interval-msec", strconv.Itoa(int(cmp.Or(o.FlushInterval, time.Second) / time.Millisecond)), "--disable-hot-restart", "--allow-unknown-static-fields",
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
	if o.Override != "" {
		args = append(args, "--config-yaml", o.Override)
	}
	if o.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(o.Concurrency))
	}
	return args
}

// Run starts Envoy and waits until it ends. When ctx ends, it drains Envoy and ends it, and returns nil. If Envoy ends
// by itself, the error is an *Exit.
func (p *Process) Run(ctx context.Context) error {
	started, failed := make(chan struct{}), make(chan error, 1)
	// The kernel ends Envoy with the thread that started it.
	safe.Go(p.o.Log, "envoy", func() { p.supervise(started, failed) })
	select {
	case err := <-failed:
		return fmt.Errorf("start %s: %w", p.o.Binary, err)
	case <-started:
	}
	select {
	case <-p.ended:
		return p.exit()
	case <-p.o.Kill:
	case <-ctx.Done():
		p.last(context.WithoutCancel(ctx))
		p.linger()
	}
	p.stop()
	return nil
}

// last has Envoy drain before its end. Kill cuts it short.
func (p *Process) last(ctx context.Context) {
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

// exit is how Envoy has ended.
func (p *Process) exit() error {
	state := p.cmd.ProcessState
	e := &Exit{Code: state.ExitCode(), State: state.String()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Code = 128 + int(status.Signal())
	}
	return e
}

// linger waits while the drained Envoy serves on.
func (p *Process) linger() {
	if !p.o.ExitOnZero {
		p.o.Log.Info("serving on while clients go elsewhere", "for", p.o.Termination)
		p.sleep(p.o.Termination)
		return
	}
	p.o.Log.Info("serving on until no connection is left", "at least", p.o.Minimum)
	if !p.sleep(p.o.Minimum) {
		return
	}
	for {
		n, err := p.connections(context.Background())
		switch {
		case err != nil: // its metrics do not say; it may serve somebody
			p.o.Log.Warn("cannot count connections", "err", err)
		case n == 0:
			return
		default:
			p.o.Log.Debug("connections are left", "count", n)
		}
		if !p.sleep(time.Second) {
			return
		}
	}
}

// sleep reports whether it slept to the end; Envoy's end, and Kill, wake it.
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

// stop ends Envoy, by force if it takes too long or Kill says so.
func (p *Process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if p.sleep(stopTimeout) {
		p.o.Log.Warn("Envoy does not end; killing it", "after", stopTimeout)
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.o.Log.Error("cannot kill Envoy", "err", err)
	}
	<-p.ended
}
