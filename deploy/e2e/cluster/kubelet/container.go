package kubelet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/child"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
)

// Program returns the control plane's binary. PILOT_DISCOVERY names it; by default it is built into the folder.
func Program(ctx context.Context, dir string) (string, error) {
	if path := os.Getenv("PILOT_DISCOVERY"); path != "" {
		return path, nil
	}
	path := filepath.Join(dir, "pilot-discovery")
	return path, binaries.Build(ctx, path, "./cmd/pilot-discovery")
}

// Main runs the tests of a package with the program, and then calls ends. A program that it builds is in a folder that
// it removes at the end. Main does not return.
func Main(m *testing.M, program *string, ends ...func()) {
	dir, err := os.MkdirTemp("", "istiod-lite-kubelet-")
	if err == nil {
		*program, err = Program(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot get the program under test:", err)
		os.Exit(1)
	}
	code := m.Run()
	for _, end := range ends {
		end()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// Options say which pod to run, and how it differs. Access and Args are optional.
type Options struct {
	Cluster    *cluster.Cluster
	Program    string // the container's entry point
	Namespace  string
	Deployment string
	Pod        string                              // the name of the pod
	Access     func(cluster.Access) cluster.Access // the pod's access to the API server
	Args       []string                            // after the container's own arguments and --kubeconfig
	Dir        string                              // the working directory, with the kubeconfig and the log
}

// Container is the first container of the pod.
type Container struct {
	Spec  corev1.Container
	Grace time.Duration // the grace period

	pod   string
	log   string // path
	cmd   *exec.Cmd
	ended <-chan struct{}

	terminate sync.Once
	mu        sync.Mutex
	killed    bool
}

// Start starts the container and does not wait.
func Start(ctx context.Context, o Options) (*Container, error) {
	d, err := o.Cluster.Client().AppsV1().Deployments(o.Namespace).Get(ctx, o.Deployment, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read deployment %s: %w", o.Deployment, err)
	}
	pod := d.Spec.Template.Spec
	access, err := o.Cluster.ServiceAccount(ctx, o.Namespace, pod.ServiceAccountName)
	if err != nil {
		return nil, err
	}
	if o.Access != nil {
		access = o.Access(access)
	}
	kubeconfig := filepath.Join(o.Dir, "kubeconfig")
	if err := access.WriteFile(kubeconfig); err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	c := &Container{Spec: pod.Containers[0], pod: o.Pod, log: filepath.Join(o.Dir, "container.log")}
	if pod.TerminationGracePeriodSeconds != nil {
		c.Grace = time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	}
	c.cmd = exec.CommandContext(context.Background(), o.Program,
		slices.Concat(c.Spec.Command, c.Spec.Args, []string{"--kubeconfig", kubeconfig}, o.Args)...)
	c.cmd.Dir = o.Dir
	if c.cmd.Env, err = environment(c.Spec, o.Pod, o.Namespace, pod.ServiceAccountName); err != nil {
		return nil, err
	}
	return c, c.start()
}

func (c *Container) start() error {
	out, err := os.Create(c.log)
	if err != nil {
		return fmt.Errorf("log of %s: %w", c.pod, err)
	}
	defer out.Close()
	c.cmd.Stdout, c.cmd.Stderr = out, out
	if c.ended, err = child.Start(c.cmd); err != nil {
		return fmt.Errorf("start %s: %w", c.pod, err)
	}
	return nil
}

// environment returns the container's environment. A source that is unknown or has no value is an error.
func environment(c corev1.Container, pod, namespace, account string) ([]string, error) {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	for _, e := range c.Env {
		value := e.Value
		if from := e.ValueFrom; from != nil && from.FieldRef != nil {
			value = map[string]string{"metadata.name": pod, "metadata.namespace": namespace,
				"spec.serviceAccountName": account}[from.FieldRef.FieldPath]
		}
		if value == "" {
			return nil, fmt.Errorf("variable %s of %s has no value", e.Name, pod)
		}
		env = append(env, e.Name+"="+value)
	}
	return env, nil
}

// Signal sends a signal to a running container.
func (c *Container) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// Kill kills the container.
func (c *Container) Kill() error {
	c.mu.Lock()
	c.killed = true
	c.mu.Unlock()
	err := c.cmd.Process.Kill()
	<-c.ended
	return err
}

// Ended returns a channel that is closed when the container has ended.
func (c *Container) Ended() <-chan struct{} { return c.ended }

// Terminate sends SIGTERM, as the end of a pod does. Only the first call does, because another signal would end the
// container at once.
func (c *Container) Terminate() {
	c.terminate.Do(func() { _ = c.cmd.Process.Signal(syscall.SIGTERM) })
}

// Stop terminates the container and waits. If it does not end in the pod's grace period, Stop kills it and returns an
// error. Another exit code than 0 is an error too, unless the container was killed before.
func (c *Container) Stop() error {
	c.Terminate()
	select {
	case <-c.ended:
	case <-time.After(c.Grace):
		_ = c.Kill()
		return fmt.Errorf("%s does not stop within %v", c.pod, c.Grace)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.killed && !c.cmd.ProcessState.Success() {
		return fmt.Errorf("%s ended with %v", c.pod, c.cmd.ProcessState)
	}
	return nil
}

// Log returns the log so far.
func (c *Container) Log() string {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
