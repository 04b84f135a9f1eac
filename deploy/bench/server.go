package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/freeport"
)

// timeout is how long a server may take for any answer.
const timeout = 5 * time.Minute

// server is a running contender.
type server struct {
	contender
	grpc, http, monitoring string
	secure, https          string // empty for limits
	started                time.Time
	cmd                    *exec.Cmd
	ended                  chan struct{}
	logFile                string
	rest                   time.Duration // idle time after which the server is at rest
	feeder                 *server       // of a limit or its feeder
	isReady                bool
}

// launch holds what starting a server needs.
type launch struct {
	cpu        cores
	kubeconfig string
	dir        string        // for logs
	number     int           // of the launch, in the name of the log
	rest       time.Duration // see server
}

// start starts a contender on the server's core. It waits only for the feeder of a limit, which runs beside the
// clients.
func start(ctx context.Context, c contender, l launch) (*server, error) {
	if !c.isLimit() {
		return startOn(ctx, c, l, l.cpu.onServerCore)
	}
	copied, err := startOn(ctx, *c.feeder, l, l.cpu.onOtherCores)
	if err != nil {
		return nil, err
	}
	if err := copied.ready(ctx); err != nil {
		copied.stop()
		return nil, err
	}
	if c.foreign {
		return startFed(ctx, c, l, copied, l.cpu.onServerCore)
	}
	feeder := c
	feeder.name, feeder.args = c.name+"-feed", append(slices.Clone(c.args), "-feed")
	feeding, err := startFed(ctx, feeder, l, copied, l.cpu.onOtherCores)
	if err != nil {
		return nil, err
	}
	if err := feeding.listens(ctx); err != nil {
		feeding.stop()
		return nil, err
	}
	c.args = nil // the feeder has these arguments
	return startFed(ctx, c, l, feeding, l.cpu.onServerCore)
}

// startFed starts a limit, or its feeder, with the server that it copies. It ends with that server.
func startFed(ctx context.Context, c contender, l launch, from *server, core func(start func() error, wait func()) error) (*server, error) {
	c.args = append(slices.Clone(c.args), "-from", from.grpc)
	s, err := startOn(ctx, c, l, core)
	if err != nil {
		from.stop()
		return nil, err
	}
	s.feeder = from
	return s, nil
}

func startOn(ctx context.Context, c contender, l launch, core func(start func() error, wait func()) error) (*server, error) {
	s := &server{contender: c, logFile: filepath.Join(l.dir, fmt.Sprintf("%s-%d.log", c.name, l.number)),
		rest: l.rest}
	ports := make([]string, 5)
	for i := range ports {
		port, err := freeport.Pick(ctx, "127.0.0.1")
		if err != nil {
			return nil, err
		}
		ports[i] = net.JoinHostPort("127.0.0.1", port)
	}
	s.grpc = ports[0]
	args := append(slices.Clone(c.args), "-addr", s.grpc)
	if !c.isLimit() {
		s.http, s.monitoring, s.https, s.secure = ports[1], ports[2], ports[3], ports[4]
		args = []string{
			"discovery", "--kubeconfig", l.kubeconfig, "--grpcAddr", s.grpc, "--httpAddr", s.http, "--monitoringAddr", s.monitoring,
			"--httpsAddr", s.https, "--secureGRPCAddr", s.secure, "--ctrlz_port", "0", "--log_output_level", "default:warn",
		}
	}
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), c.binary, args...)
	s.cmd.Dir, s.cmd.Env = l.dir, c.env
	if err := s.run(core); err != nil {
		return nil, err
	}
	return s, nil
}

// run runs the command of the server on some cores.
func (s *server) run(core func(start func() error, wait func()) error) error {
	log, err := os.OpenFile(s.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open a log: %w", err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan struct{})
	s.ended = ended
	cmd := s.cmd
	err = core(func() error { s.started = time.Now(); return cmd.Start() }, func() { _ = cmd.Wait(); close(ended) })
	if err != nil {
		return fmt.Errorf("start %s: %w", s.title, err)
	}
	return nil
}

// restart kills the server and starts it on the server's core, at the same addresses.
func (s *server) restart(ctx context.Context, cpu cores) error {
	s.stop()
	before := s.cmd
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), before.Path, before.Args[1:]...)
	s.cmd.Dir, s.cmd.Env, s.isReady = before.Dir, before.Env, false
	return s.run(cpu.onServerCore)
}

// stop kills the server, because its shutdown is not measured.
func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	<-s.ended
	if s.feeder != nil {
		s.feeder.stop()
	}
}

// usage returns what the server has used since its start.
func (s *server) usage() (usage, error) { return usageOf(s.cmd.Process.Pid) }

// ready waits until /ready answers. A limit has no such page, so it waits until the limit listens and is at rest.
func (s *server) ready(ctx context.Context) (err error) {
	if s.isReady {
		return nil
	}
	defer func() { s.isReady = err == nil }()
	if s.http == "" {
		if err := s.listens(ctx); err != nil {
			return err
		}
		_, err := s.settle(ctx)
		return err
	}
	return s.poll(ctx, "be ready", func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+"/ready", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body) // otherwise the next request would cost the server a connection
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// listens waits until proxies can connect.
func (s *server) listens(ctx context.Context) error {
	return s.poll(ctx, "listen", func() error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.grpc)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func (s *server) poll(ctx context.Context, what string, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("%s ended before it would %s: %s; %s", s.title, what, s.cmd.ProcessState, s.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not %s: %w; %s", s.title, what, err, s.tail())
		case <-time.After(10 * time.Millisecond): // each request costs the server some of the CPU that is measured
		}
	}
}

// settle waits until the server has used next to no CPU for some time, and returns what it has used so far.
func (s *server) settle(ctx context.Context) (usage, error) {
	const little = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for last := time.Duration(-1); ; {
		u, err := s.usage()
		if err != nil {
			return u, err
		}
		if last >= 0 && u.cpu-last <= little {
			return u, nil
		}
		last = u.cpu
		select {
		case <-ctx.Done():
			return u, fmt.Errorf("%s does not come to rest: %w", s.title, ctx.Err())
		case <-time.After(s.rest):
		}
	}
}

// tail returns the end of the server's log.
func (s *server) tail() string {
	b, err := os.ReadFile(s.logFile)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("its log, %s, ends: %s", s.logFile, strings.TrimSpace(string(b[max(0, len(b)-2000):])))
}
