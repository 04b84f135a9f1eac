package suite

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// programsVar is the environment variable with the folder of the programs of other projects.
const programsVar = "E2E_PROGRAMS"

// requestTimeout is the limit of a request of a Client.
const requestTimeout = 30 * time.Second

// ProgramsWith returns a function that fits Prepare of Options. It copies Envoy, the control plane, the agent, and
// programs of other projects.
func ProgramsWith(names ...string) func(ctx context.Context, dir string) ([]string, error) {
	return func(ctx context.Context, dir string) ([]string, error) {
		set, err := binaries.Gather(ctx, dir)
		if err != nil {
			return nil, err
		}
		agent, err := set.Agent(ctx)
		environ := []string{EnvoyVar + "=" + set.Envoy, PilotVar + "=" + set.Pilot, AgentVar + "=" + agent, programsVar + "=" + dir}
		for _, name := range names {
			if err != nil {
				return nil, err
			}
			var more []string
			more, err = binaries.Program(dir, name)
			environ = append(environ, more...)
		}
		return environ, err
	}
}

// Program is a program of another project that runs in a pod.
type Program struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// Run starts a program of ProgramsWith in a pod, with its output in a log beside the logs of proxies. It ends with the
// test.
func (m *Mesh) Run(t *testing.T, pod, name string, environ []string, args ...string) *Program {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(filepath.Dir(m.Dir), name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must.Succeed(t, err)
	defer log.Close()
	p := &Program{exec.CommandContext(context.Background(), filepath.Join(os.Getenv(programsVar), name), args...), make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = filepath.Dir(m.Dir), append([]string{"PATH=" + os.Getenv("PATH")}, environ...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(t, m.Pod(pod).Location.Start(p.cmd))
	go func() { defer close(p.ended); _ = p.cmd.Wait() }()
	t.Cleanup(p.Kill)
	return p
}

// Kill ends the program at once, and waits for it.
func (p *Program) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Client returns a client whose connections come from a pod, and that follows no redirects. hosts are addresses by the
// host and port of a URL; others must be literal.
func Client(pod *world.Running, hosts map[string]string) *http.Client {
	return &http.Client{
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if literal, ok := hosts[address]; ok {
				address = literal
			}
			return pod.Location.DialContext(ctx, network, address)
		}},
	}
}

// Fine checks that no proxy has rejected anything, and that the control plane has no findings.
func (m *Mesh) Fine(t *testing.T) {
	t.Helper()
	if err := m.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	resp, err := m.Pilot.Get(t.Context(), "/debug/findings")
	must.Succeed(t, err)
	defer resp.Body.Close()
	var found []struct{ Object, Field, Code, Message string }
	must.Succeed(t, json.NewDecoder(resp.Body).Decode(&found))
	for _, f := range found {
		t.Errorf("a finding: %+v", f)
	}
}
