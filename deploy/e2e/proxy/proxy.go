package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Location is a pod or the machine itself, in which a proxy runs.
type Location interface {
	Start(*exec.Cmd) error
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
}

// Options say what to run.
type Options struct {
	Binary   string
	Location Location
	Node     Node
	// Agent runs Envoy. Without it, Envoy has no certificates except those from SDS. Optional.
	Agent *Agent
	// XDS is the control plane's plaintext address, for a proxy without an agent.
	XDS string
	// SDS is the address from which a proxy without an agent gets certificates. Optional.
	SDS string
	// Delta selects delta xDS, and otherwise state of the world.
	Delta bool
	// Admin is the address of the admin API. Its port must not be 0.
	Admin string
	// Mark is the SO_MARK of the proxy's own connections. 0 sets none.
	Mark int
	// WorkDir is the folder of the bootstrap and the log, which have the node's name.
	WorkDir string
}

// Proxy is a running Envoy.
type Proxy struct {
	o     Options
	cmd   *exec.Cmd
	admin *http.Client
	ended chan struct{}
}

// Start starts a proxy. It does not wait for its configuration.
func Start(o Options) (*Proxy, error) {
	p := &Proxy{o: o, ended: make(chan struct{})}
	p.admin = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DialContext: o.Location.DialContext, DisableKeepAlives: true}}
	var err error
	if o.Agent != nil {
		p.cmd, err = o.agentCommand(p.Dir())
	} else {
		p.cmd, err = o.envoyCommand()
	}
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", o.Node.Name, err)
	}
	log, err := os.Create(p.LogFile())
	if err != nil {
		return nil, fmt.Errorf("open log of a proxy: %w", err)
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := o.Location.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start proxy %s: %w", o.Node.Name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// envoyCommand writes the bootstrap, and returns the command that runs Envoy without an agent.
func (o Options) envoyCommand() (*exec.Cmd, error) {
	b, err := o.bootstrap()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(o.WorkDir, o.Node.Name+".json")
	if err := os.WriteFile(config, b, 0o644); err != nil {
		return nil, fmt.Errorf("write bootstrap: %w", err)
	}
	return exec.CommandContext(context.Background(), o.Binary, "-c", config, "--concurrency", "1", "--disable-hot-restart",
		"--log-level", "warning",
		"--drain-time-s", "2", "--parent-shutdown-time-s", "3", "--file-flush-interval-msec", "1000"), nil
}

// Name returns the name of the node.
func (p *Proxy) Name() string { return p.o.Node.Name }

// LogFile returns the path of the output of the proxy and its agent.
func (p *Proxy) LogFile() string { return filepath.Join(p.o.WorkDir, p.o.Node.Name+".log") }

// stopTimeout is how long an agent may take to end its Envoy.
const stopTimeout = 10 * time.Second

// Stop ends the proxy and waits for it.
func (p *Proxy) Stop() {
	if p.o.Agent != nil { // a second signal makes the agent end Envoy at once
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		_ = p.cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-p.ended:
			return
		case <-time.After(stopTimeout):
		}
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Signal sends a signal to the process: Envoy or, if there is one, its agent.
func (p *Proxy) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Stats returns the counters and gauges whose names match the regular expression.
func (p *Proxy) Stats(ctx context.Context, filter string) (map[string]int, error) {
	body, err := p.Get(ctx, "/stats?filter="+url.QueryEscape(filter))
	if err != nil {
		return nil, err
	}
	stats := map[string]int{}
	for line := range strings.Lines(string(body)) {
		i := strings.LastIndex(line, ": ")
		if i < 0 {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(line[i+2:])); err == nil {
			stats[line[:i]] = n
		}
	}
	return stats, nil
}

// Get requests a path of the admin API.
func (p *Proxy) Get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.o.Admin+path, nil)
	if err != nil {
		return nil, fmt.Errorf("admin of %s: %w", p.Name(), err)
	}
	resp, err := p.admin.Do(req)
	if err != nil {
		return nil, fmt.Errorf("admin of %s: %w", p.Name(), err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("admin of %s: %w", p.Name(), err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("admin of %s: %s says %s", p.Name(), path, resp.Status)
	}
	return body, nil
}

// errNotYet marks states that a proxy passes through before it is ready.
var errNotYet = errors.New("not yet")

const healthStats = `^(cluster_manager\.warming_clusters|cluster_manager\.cds\.update_success|` +
	`listener_manager\.(total_listeners_warming|workers_started|lds\.update_success)|.*\.update_rejected)$`

// Healthy returns nil if the proxy has accepted its whole configuration: it has clusters and listeners, its workers
// accept connections, nothing was rejected and nothing is warming.
func (p *Proxy) Healthy(ctx context.Context) error {
	stats, err := p.Stats(ctx, healthStats)
	if err != nil {
		return errors.Join(errNotYet, err)
	}
	for name, n := range stats {
		if strings.HasSuffix(name, ".update_rejected") && n > 0 {
			return fmt.Errorf("proxy %s: %s is %d: %s", p.Name(), name, n, p.rejections())
		}
	}
	for _, name := range []string{"cluster_manager.cds.update_success", "listener_manager.lds.update_success",
		"listener_manager.workers_started"} {
		if stats[name] == 0 {
			return fmt.Errorf("proxy %s: %s is 0: %w", p.Name(), name, errNotYet)
		}
	}
	for _, name := range []string{"cluster_manager.warming_clusters", "listener_manager.total_listeners_warming"} {
		if n, ok := stats[name]; n > 0 || !ok {
			return fmt.Errorf("proxy %s: %s is %d: %w", p.Name(), name, n, errNotYet)
		}
	}
	return nil
}

// Ready waits until the proxy is healthy. A rejection is final.
func (p *Proxy) Ready(ctx context.Context) error {
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 250*time.Millisecond) {
		err := p.Healthy(ctx)
		if !errors.Is(err, errNotYet) {
			return err
		}
		select {
		case <-p.ended:
			return fmt.Errorf("proxy %s ended: %s\n%s", p.Name(), p.cmd.ProcessState, p.tail(10))
		case <-ctx.Done():
			return fmt.Errorf("%w\n%s", err, p.tail(10))
		case <-time.After(pause):
		}
	}
}

// rejections returns the lines of the log in which Envoy names what it refused.
func (p *Proxy) rejections() string {
	b, err := os.ReadFile(p.LogFile())
	if err != nil {
		return err.Error()
	}
	var said []string
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "rejected") && len(said) < 5 {
			said = append(said, strings.TrimSpace(line))
		}
	}
	return strings.Join(said, "\n")
}

// tail returns the last lines of the log.
func (p *Proxy) tail(n int) string {
	b, err := os.ReadFile(p.LogFile())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}
