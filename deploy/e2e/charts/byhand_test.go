package charts

import (
	"context"
	"encoding/json"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/kubelet"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// program is the binary that the image holds.
var program string

func TestMain(m *testing.M) { kubelet.Main(m, &program) }

// runByHand runs the pod of a release on free ports, and then the container of `helm test`. After SIGTERM the pod is
// not ready, but still serves for a while.
func (w *world) runByHand(ctx context.Context, t *testing.T, h charts.Helm, release, revision string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	name := strings.TrimSuffix("istiod-"+revision, "-")
	i := &installed.World{Cluster: w.Cluster, T: t, Ctx: ctx}
	server := i.Launch(program, name, name+"-0")
	stop := sync.OnceFunc(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("%v: %s", err, tail(server.Log()))
		}
	})
	defer stop()
	if server.Spec.Name != "discovery" {
		t.Errorf("the container is called %s", server.Spec.Name)
	}

	server.Ready()
	test := hook(ctx, t, h, release).Spec.Containers[0]
	service := name + "." + namespace + ".svc:15014"
	if !slices.Contains(test.Args, service) {
		t.Fatalf("helm test asks %v, not %s", test.Args, service)
	}
	for i, arg := range test.Args {
		test.Args[i] = strings.ReplaceAll(arg, service, server.Monitoring)
	}
	ask := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
		return string(out), err
	}
	helmTest := slices.Concat(test.Command, test.Args)
	if out, err := ask(helmTest...); err != nil || !strings.Contains(out, "lite") {
		t.Errorf("helm test: %v: %s", err, out)
	}
	server.Terminate()
	for {
		out, err := ask("request", "GET", "/ready", "--address", server.HTTP)
		if err == nil {
			continue
		}
		if !strings.Contains(out, "503") {
			t.Errorf("a server that was told to stop does not say that it is not ready: %s", out)
		}
		break
	}
	if conn, err := net.Dial("tcp", server.GRPC); err != nil {
		t.Errorf("a server that was told to stop takes no connections while they still come: %v", err)
	} else {
		_ = conn.Close()
	}
	stop()
	if out, err := ask(helmTest...); err == nil {
		t.Errorf("helm test without a server: %s", out)
	}

	said := server.Log()
	t.Logf("%s said:\n%s", name, said)
	for _, bad := range []string{"unknown flag", "no effect here", "arguments ignored", "is not understood", "forbidden",
		"Forbidden", "panic"} {
		if strings.Contains(said, bad) {
			t.Errorf("%s says %q: %s", name, bad, tail(said))
		}
	}
	if json.Valid([]byte(strings.SplitN(said, "\n", 2)[0])) != strings.Contains(strings.Join(server.Spec.Args, " "), "--log_as_json") {
		t.Errorf("%s: log of the wrong form: %s", name, tail(said))
	}
}

// hook returns the pod that `helm test` would start.
func hook(ctx context.Context, t *testing.T, h charts.Helm, release string) *corev1.Pod {
	t.Helper()
	out, err := h.Run(ctx, "get", "hooks", release, "-n", namespace)
	must.Succeed(t, err)
	pod := &corev1.Pod{}
	must.Succeed(t, yaml.UnmarshalStrict([]byte(out), pod))
	if pod.Annotations["helm.sh/hook"] != "test" || len(pod.Spec.Containers) != 1 {
		t.Fatalf("not the pod of a test: %s", out)
	}
	return pod
}
