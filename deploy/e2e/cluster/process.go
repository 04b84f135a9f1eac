package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/child"
)

// errPortTaken means that another program took the port before it was used.
var errPortTaken = errors.New("port is taken")

// process is a program that may be restarted.
type process struct {
	name    string
	binary  string
	args    []string
	logFile string
	// ready is called until it returns no error.
	ready func(ctx context.Context) error

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended <-chan struct{}
}

// start starts the program and waits until it is ready.
func (p *process) start(ctx context.Context) error {
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", p.name, err)
	}
	defer log.Close()
	from, err := log.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", p.name, err)
	}
	cmd := exec.CommandContext(context.Background(), p.binary, p.args...)
	cmd.Dir = filepath.Dir(p.logFile)
	// A process lives for seconds. Less frequent garbage collection saves a third of its work.
	cmd.Env = append(os.Environ(), "GOGC=400", "GOMEMLIMIT=1GiB")
	cmd.Stdout, cmd.Stderr = log, log
	ended, err := child.Start(cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.mu.Lock()
	p.cmd, p.ended = cmd, ended
	p.mu.Unlock()
	return p.wait(ctx, from)
}

func (p *process) wait(ctx context.Context, logFrom int64) error {
	for {
		err := p.ready(ctx)
		select {
		case <-p.ended:
			return p.whyEnded(logFrom)
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
		case <-ctx.Done():
			p.kill()
			return fmt.Errorf("%s is not ready: %w; %s", p.name, err, p.tail(logFrom))
		case <-time.After(25 * time.Millisecond):
		}
	}
}

func (p *process) whyEnded(logFrom int64) error {
	tail := p.tail(logFrom)
	err := fmt.Errorf("%s ended: %s; %s", p.name, p.cmd.ProcessState, tail)
	if strings.Contains(tail, "address already in use") {
		return errors.Join(errPortTaken, err)
	}
	return err
}

// tail returns the end of the log.
func (p *process) tail(from int64) string {
	const most = 4096
	b, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("its log, %s, ends: %s", p.logFile, b[max(from, int64(len(b))-most):])
}

// kill kills the program, even if it is stopped, and waits for it.
func (p *process) kill() {
	if p.signal(syscall.SIGKILL) == nil {
		<-p.ended
	}
}

// signal returns an error if the program does not run.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s was never started", p.name)
	}
	select {
	case <-p.ended:
		return fmt.Errorf("%s does not run", p.name)
	default:
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// pid returns the ID of the running program.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}
