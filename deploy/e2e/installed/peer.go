package installed

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/child"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
)

// Peer is a control plane for comparison: this project's or Istio's. It gets only flags that both understand.
type Peer struct {
	Program, Kubeconfig string
	Args, Env           []string
}

// Start starts the control plane on free ports of loopback, and waits until it is ready. It returns the addresses by
// flag, such as grpcAddr. The control plane ends with the test. If the test fails, its log is printed.
func (p Peer) Start(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	at := map[string]string{}
	args := append([]string{"discovery", "--kubeconfig", p.Kubeconfig, "--ctrlz_port", "0", "--log_output_level", "default:warn"}, p.Args...)
	for _, name := range []string{"grpcAddr", "secureGRPCAddr", "httpAddr", "httpsAddr", "monitoringAddr"} {
		port, err := freeport.Pick(ctx, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		at[name] = net.JoinHostPort("127.0.0.1", port)
		args = append(args, "--"+name, at[name])
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), p.Program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append([]string{"HOME=" + dir, "POD_NAME=istiod-0", "POD_NAMESPACE=" + Namespace, "ENABLE_LEADER_ELECTION=false",
		"INJECT_ENABLED=false"}, p.Env...)
	ended, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		<-ended
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s said: %s", p.Program, text[max(0, len(text)-4000):])
		}
		_ = log.Close()
	})
	for {
		err := ready(ctx, at["httpAddr"])
		if err == nil {
			return at
		}
		select {
		case <-ended:
			t.Fatalf("%s has ended", p.Program)
		case <-ctx.Done():
			t.Fatalf("%s is not ready: %v", p.Program, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func ready(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/ready", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/ready says %s", resp.Status)
	}
	return nil
}
