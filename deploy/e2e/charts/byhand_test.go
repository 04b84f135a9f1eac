package charts

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
)

// program gives the binary that the image holds.
var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("PILOT_DISCOVERY"); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "istiod-lite-charts-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "pilot-discovery")
	return path, binaries.Build(context.Background(), path, "./cmd/pilot-discovery")
})

// TestMain takes the binary away.
func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil && os.Getenv("PILOT_DISCOVERY") == "" {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// runByHand does what a kubelet would with the pod of a release: it runs the container's command in the container's environment, with the rights of the pod's
// ServiceAccount, on ports that are free; and then the container of `helm test`.
func (w *world) runByHand(ctx context.Context, t *testing.T, h charts.Helm, release, revision string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	binary, err := program()
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSuffix("istiod-"+revision, "-")
	d, err := w.Client().AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	server := pod.Containers[0]
	if server.Name != "discovery" {
		t.Errorf("the container is called %s", server.Name)
	}
	access, err := w.ServiceAccount(ctx, namespace, pod.ServiceAccountName)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig, addresses := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "addresses.json")
	if err := access.WriteFile(kubeconfig); err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(server.Command, server.Args, []string{"--kubeconfig", kubeconfig, "--addressFile", addresses})
	for _, flag := range []string{"monitoringAddr", "grpcAddr", "secureGRPCAddr", "httpAddr", "httpsAddr"} {
		args = append(args, "--"+flag+"=127.0.0.1:0")
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = environment(t, server, name+"-0", pod.ServiceAccountName)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := <-ended; err != nil {
				t.Errorf("%s ended with %v: %s", name, err, tail(&stderr))
			}
		}
	}
	defer stop()

	at := map[string]string{}
	for len(at) == 0 { // the file is there once the server is ready
		select {
		case err := <-ended:
			stopped = true
			t.Fatalf("%s ended: %v: %s", name, err, tail(&stderr))
		case <-ctx.Done(): // which has the server stopped
			stopped = true
			<-ended
			t.Fatalf("%s is not ready: %s", name, tail(&stderr))
		case <-time.After(20 * time.Millisecond):
		}
		if text, err := os.ReadFile(addresses); err == nil {
			_ = json.Unmarshal(text, &at)
		}
	}

	test := hook(ctx, t, h, release).Spec.Containers[0]
	service := name + "." + namespace + ".svc:15014"
	if !slices.Contains(test.Args, service) {
		t.Fatalf("helm test asks %v, not %s", test.Args, service)
	}
	for i, arg := range test.Args {
		test.Args[i] = strings.ReplaceAll(arg, service, at["monitoring"])
	}
	out, err := exec.CommandContext(ctx, binary, slices.Concat(test.Command, test.Args)...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "lite") {
		t.Errorf("helm test: %v: %s", err, out)
	}
	stop()
	if out, err := exec.CommandContext(ctx, binary, slices.Concat(test.Command, test.Args)...).CombinedOutput(); err == nil {
		t.Errorf("helm test without a server: %s", out)
	}

	said := stderr.String()
	t.Logf("%s said:\n%s", name, said)
	for _, bad := range []string{"unknown flag", "no effect here", "arguments ignored", "is not understood", "forbidden", "Forbidden", "panic"} {
		if strings.Contains(said, bad) {
			t.Errorf("%s says %q: %s", name, bad, tail(&stderr))
		}
	}
	if json.Valid([]byte(strings.SplitN(said, "\n", 2)[0])) != strings.Contains(strings.Join(server.Args, " "), "--log_as_json") {
		t.Errorf("%s: log of the wrong form: %s", name, tail(&stderr))
	}
}

// environment is what a kubelet makes of a container's.
func environment(t *testing.T, c corev1.Container, pod, account string) []string {
	t.Helper()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	for _, e := range c.Env {
		value := e.Value
		switch from := e.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil:
			value = map[string]string{"metadata.name": pod, "metadata.namespace": namespace, "spec.serviceAccountName": account}[from.FieldRef.FieldPath]
		case from.ResourceFieldRef != nil && from.ResourceFieldRef.Resource == "limits.memory":
			value = c.Resources.Limits.Memory().AsDec().String()
		}
		if value == "" {
			t.Errorf("variable %s has no value", e.Name)
		}
		env = append(env, e.Name+"="+value)
	}
	return env
}

// hook gives the pod that `helm test` would start.
func hook(ctx context.Context, t *testing.T, h charts.Helm, release string) *corev1.Pod {
	t.Helper()
	out, err := h.Run(ctx, "get", "hooks", release, "-n", namespace)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(out), pod); err != nil {
		t.Fatal(err)
	}
	if pod.Annotations["helm.sh/hook"] != "test" || len(pod.Spec.Containers) != 1 {
		t.Fatalf("not the pod of a test: %s", out)
	}
	return pod
}
