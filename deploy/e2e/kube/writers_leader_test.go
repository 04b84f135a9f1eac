package kube

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/child"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
)

// startReplica starts a process that takes part in an election, and returns its output.
func startReplica(w *installed.World, access cluster.Access, name string) (*os.Process, <-chan string) {
	w.T.Helper()
	kubeconfig := filepath.Join(w.T.TempDir(), name)
	w.Must(access.WriteFile(kubeconfig))
	cmd := exec.CommandContext(w.Ctx, os.Args[0])
	cmd.Env = append(os.Environ(), replicaVar+"="+name, kubeconfigVar+"="+kubeconfig)
	cmd.Stderr = w.T.Output()
	out, err := cmd.StdoutPipe()
	w.Must(err)
	ended, err := child.Start(cmd)
	w.Must(err)
	said := make(chan string, 100)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			said <- s.Text()
		}
	}()
	w.T.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be dead already
		<-ended
	})
	return cmd.Process, said
}

// hear waits until the next line of a replica's output is the given one.
func hear(w *installed.World, said <-chan string, want string) {
	w.T.Helper()
	select {
	case got := <-said:
		if got != want {
			w.T.Fatalf("a replica says %q, want %q", got, want)
		}
	case <-w.Ctx.Done():
		w.T.Fatalf("no replica says %q", want)
	}
}

// mapVersion returns the version of a replica's ConfigMap. Each write changes it.
func mapVersion(w *installed.World, name string) string {
	w.T.Helper()
	m, err := w.Client().CoreV1().ConfigMaps(root).Get(w.Ctx, name, metav1.GetOptions{})
	w.Must(err)
	return m.ResourceVersion
}

// A leader that is stopped for longer than its lease writes nothing after it resumes. After a kill, another replica
// takes over.
func TestLeaderIsStoppedAndResumed(t *testing.T) {
	t.Parallel()
	w, access := account(t)
	w.Write("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, namespace: istio-system}\n---\napiVersion: v1\nkind: ConfigMap\n" +
		"metadata: {name: two, namespace: istio-system}\n")
	one, saidOne := startReplica(w, access, "one")
	hear(w, saidOne, "leading")
	_, saidTwo := startReplica(w, access, "two")
	written := mapVersion(w, "one")
	w.Eventually("the leader writes", func() error {
		if mapVersion(w, "one") == written {
			return errors.New("it does not")
		}
		return nil
	})
	before := mapVersion(w, "two")

	stopped := time.Now()
	w.Must(one.Signal(syscall.SIGSTOP))
	hear(w, saidTwo, "leading")
	t.Logf("taken over after %v", time.Since(stopped).Round(time.Millisecond))
	w.Eventually("the new leader writes", func() error {
		if mapVersion(w, "two") == before {
			return errors.New("it does not")
		}
		return nil
	})
	last := mapVersion(w, "one")
	w.Must(one.Signal(syscall.SIGCONT))
	hear(w, saidOne, "lost")
	if now := mapVersion(w, "one"); now != last {
		t.Errorf("the resumed leader has written: version %s, was %s", now, last)
	}
}
