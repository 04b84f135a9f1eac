package controlplane

import (
	"bufio"
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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/child"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
)

// Options say what to run.
type Options struct {
	Binary string
	// ConfigDir is a directory of YAML, and Kubeconfig leads to an API server. With both, services and endpoints come from
	// the API server.
	ConfigDir  string
	Kubeconfig string
	// Host is the address that proxies reach. The ports without authentication are on loopback.
	Host string
	// StateDir is the folder of the certificate authority. Without it, the process has none.
	StateDir string
	// Args are added to the command line, and Env, of the form NAME=value, to the environment.
	Args, Env []string
	// WorkDir is the folder of the log and of the address file.
	WorkDir string
}

// Addresses are the addresses on which a process listens.
type Addresses struct {
	GRPC       string `json:"grpc"`
	SecureGRPC string `json:"secureGrpc"`
	HTTP       string `json:"http"`
	Monitoring string `json:"monitoring"`
}

// Process is a running control plane.
type Process struct {
	Addresses

	o     Options
	cmd   *exec.Cmd
	ended <-chan struct{}
}

// Start starts a control plane and waits until it is ready.
func Start(ctx context.Context, o Options) (*Process, error) {
	p := &Process{o: o}
	all := map[*string]string{&p.GRPC: o.Host, &p.HTTP: "127.0.0.1", &p.Monitoring: "127.0.0.1"}
	if o.StateDir != "" {
		all[&p.SecureGRPC] = o.Host
	}
	for address, host := range all { // fixed ports, which a restarted process finds free
		port, err := freeport.Pick(ctx, host)
		if err != nil {
			return nil, err
		}
		*address = net.JoinHostPort(host, port)
	}
	return p, p.start(ctx)
}

// Restart starts the process again at the same addresses, and waits until it is ready.
func (p *Process) Restart(ctx context.Context) error { return p.start(ctx) }

// RestartFrom is Restart with other sources.
func (p *Process) RestartFrom(ctx context.Context, configDir, kubeconfig string) error {
	p.o.ConfigDir, p.o.Kubeconfig = configDir, kubeconfig
	return p.start(ctx)
}

// Kill kills the process.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Stop terminates the process and waits. After ten seconds it kills the process.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
}

// LogFile returns the path of the process's output.
func (p *Process) LogFile() string { return filepath.Join(p.o.WorkDir, "pilot-discovery.log") }

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// PID returns the ID of the running process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Follow calls line for each new line of the log until ctx ends.
func (p *Process) Follow(ctx context.Context, line func(string)) error {
	log, err := os.Open(p.LogFile())
	if err != nil {
		return fmt.Errorf("follow the log: %w", err)
	}
	defer log.Close()
	if _, err := log.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("follow the log: %w", err)
	}
	lines := bufio.NewReader(log)
	var text strings.Builder
	for {
		part, err := lines.ReadString('\n')
		text.WriteString(part)
		if err == nil {
			line(strings.TrimSuffix(text.String(), "\n"))
			text.Reset()
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Metric returns the value of a counter or gauge. The name ends with its labels, as on the page.
func (p *Process) Metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Monitoring+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("there is no %s", name)
}

// Get requests a path from the HTTP port.
func (p *Process) Get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.HTTP+path, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

func (p *Process) start(ctx context.Context) error {
	log, err := os.OpenFile(p.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of the control plane: %w", err)
	}
	defer log.Close()
	addressFile := filepath.Join(p.o.WorkDir, "addresses.json")
	if err := os.Remove(addressFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old address file: %w", err)
	}
	args := []string{
		"discovery", "--configDir", p.o.ConfigDir, "--grpcAddr", p.GRPC,
		"--httpAddr", p.HTTP, "--monitoringAddr", p.Monitoring, "--secureGRPCAddr", p.SecureGRPC, "--httpsAddr=", "--addressFile", addressFile,
	}
	if p.o.StateDir != "" {
		args = append(args, "--stateDir", p.o.StateDir)
	}
	if p.o.Kubeconfig == "" {
		args = append(args, "--registries=")
	} else {
		args = append(args, "--kubeconfig", p.o.Kubeconfig)
	}
	p.cmd = exec.CommandContext(context.Background(), p.o.Binary, append(args, p.o.Args...)...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), p.o.Env...)
	if p.ended, err = child.Start(p.cmd); err != nil {
		return fmt.Errorf("start control plane: %w", err)
	}
	for {
		err := p.ready(ctx, addressFile)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("control plane ended: %s; its log: %s", p.cmd.ProcessState, p.LogFile())
		case <-ctx.Done():
			p.Kill()
			return fmt.Errorf("control plane is not ready: %w; its log: %s", err, p.LogFile())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ready reads the addresses of the process, and asks whether it is ready.
func (p *Process) ready(ctx context.Context, addressFile string) error {
	b, err := os.ReadFile(addressFile)
	if err != nil {
		return err
	}
	var bound Addresses
	if err := json.Unmarshal(b, &bound); err != nil {
		return fmt.Errorf("address file: %w", err)
	}
	p.Addresses = bound
	resp, err := p.Get(ctx, "/ready")
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || bound.GRPC == "" {
		return fmt.Errorf("/ready says %s", resp.Status)
	}
	return nil
}
