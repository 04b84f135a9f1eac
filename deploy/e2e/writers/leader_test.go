package writers

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
)

// startReplica starts a process that stands for election, and returns its output.
func startReplica(ctx context.Context, t *testing.T, access cluster.Access, name string) (*os.Process, <-chan string) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), name)
	if err := access.WriteFile(kubeconfig); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), replicaVar+"="+name, kubeconfigVar+"="+kubeconfig)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, read := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			said <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have been killed before
		<-read
		_ = cmd.Wait() // how a killed process ends is no news
	})
	return cmd.Process, said
}

func hear(ctx context.Context, t *testing.T, said <-chan string, want string) {
	t.Helper()
	select {
	case got := <-said:
		if got != want {
			t.Fatalf("a replica says %q, want %q", got, want)
		}
	case <-ctx.Done():
		t.Fatalf("no replica says %q", want)
	}
}

// version is that of a replica's ConfigMap: each write changes it.
func version(ctx context.Context, t *testing.T, c *cluster.Cluster, name string) string {
	t.Helper()
	m, err := c.Client().CoreV1().ConfigMaps("istio-system").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m.ResourceVersion
}

// A leader that is stopped for longer than its lease, and goes on where it was, has written for the last time; one that
// is killed is followed.
func TestLeaderIsStoppedAndResumed(t *testing.T) {
	t.Parallel()
	ctx, c, access := start(t)
	for _, name := range []string{"one", "two"} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.Client().CoreV1().ConfigMaps("istio-system").Create(ctx, m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	one, saidOne := startReplica(ctx, t, access, "one")
	hear(ctx, t, saidOne, "leading")
	_, saidTwo := startReplica(ctx, t, access, "two")
	written := version(ctx, t, c, "one")
	eventually(ctx, t, "the leader writes", func() error {
		if version(ctx, t, c, "one") == written {
			return errors.New("it does not")
		}
		return nil
	})
	before := version(ctx, t, c, "two")

	stopped := time.Now()
	if err := one.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	hear(ctx, t, saidTwo, "leading")
	t.Logf("taken over after %v", time.Since(stopped).Round(time.Millisecond))
	eventually(ctx, t, "the new leader writes", func() error {
		if version(ctx, t, c, "two") == before {
			return errors.New("it does not")
		}
		return nil
	})
	last := version(ctx, t, c, "one")
	if err := one.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	hear(ctx, t, saidOne, "lost")
	if now := version(ctx, t, c, "one"); now != last {
		t.Errorf("the resumed leader has written: version %s, was %s", now, last)
	}
}
