//go:build compat

package istioctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/compat"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/kubelet"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// program is the binary that the image holds.
var program string

func TestMain(m *testing.M) { kubelet.Main(m, &program) }

const mesh = `
apiVersion: v1
kind: Namespace
metadata: {name: a}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: a}
spec: {hosts: [web], http: [{route: [{destination: {host: web}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: a}
spec: {host: web, trafficPolicy: {loadBalancer: {simple: ROUND_ROBIN}}}
`

// withInjection makes the API server call the injector about pods from then on, at a name that it cannot reach.
const withInjection = `
apiVersion: v1
kind: Namespace
metadata: {name: a, labels: {istio-injection: enabled}}
`

// pages returns the pages in istiod's /debug/list.
func pages() []string {
	return strings.Fields(`adsz ambientz authorizationz cachez clusterz configz connections endpointShardz endpointz inject
		instancesz krtz mcsz mesh networkz push_status pushcontext registryz resourcesz syncz telemetryz list
		config_dump?proxyID=web-0.a ecdsz?proxyID=web-0.a edsz?proxyID=web-0.a ndsz?proxyID=web-0.a sidecarz?proxyID=web-0.a`)
}

// command is a command of istioctl with its expected output.
type command struct {
	name, about string
	args        []string
	want        string // of its output, a regular expression
}

// TestCommandsAsIstioctl runs every command that asks the control plane something.
func TestCommandsAsIstioctl(t *testing.T) {
	istioctl, err := binaries.Tool("istioctl", "ISTIOCTL")
	must.Succeed(t, err)
	w := installed.Start(t)
	port, err := freeport.Pick(w.Ctx, "127.0.0.1")
	w.Must(err)
	server := w.Launch(program, "istiod", "istiod-0", "--ctrlz_port="+port).Ready()
	w.Write(mesh)
	pod(w, "istio-system", "istiod-0", "discovery",
		map[string]string{"app": "istiod", "istio": "pilot", "istio.io/rev": "default", "sidecar.istio.io/inject": "false"})
	pod(w, "a", "web-0", "istio-proxy", map[string]string{"app": "web"})
	w.Write(withInjection)
	_, err = w.ServiceAccount(w.Ctx, "istio-system", "default")
	w.Must(err)
	log, err := os.Create(filepath.Join(t.TempDir(), "load.log"))
	w.Must(err)
	t.Cleanup(func() {
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the proxy said: %.2000s", text)
		}
		_ = log.Close()
	})
	load := exec.CommandContext(t.Context(), program, "load", "--address", server.GRPC, "--proxies", "1", "--namespace", "a", "--pod",
		"web-{i}", "--labels", "app=web", "--duration", "10m")
	load.Stdout, load.Stderr = log, log
	w.Must(load.Start())
	t.Cleanup(func() { _ = load.Process.Kill(); _ = load.Wait() })
	dump := filepath.Join(t.TempDir(), "dump.json")
	last := ""
	w.Eventually("the proxy has its routes, and is sent nothing more", func() error {
		text, err := fetch(w.Ctx, "http://"+server.Monitoring+"/debug/config_dump?proxyID=web-0.a")
		if err == nil && (!strings.Contains(text, `"web.a.svc.cluster.local:80"`) || text != last) {
			err = fmt.Errorf("not yet: %.200s", text)
		}
		last = text
		if err == nil {
			err = os.WriteFile(dump, []byte(text), 0o600)
		}
		return err
	})
	at := func(address string) string { _, p, _ := net.SplitHostPort(address); return "127.0.0.1:" + p }
	// The proxy is simulated, so the dump is made of the configuration that it was sent and not by Envoy.
	admin := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.ServeFile(rw, r, dump)
	}))
	t.Cleanup(admin.Close)
	kubeconfig := front(t, w.Admin(), map[string]string{
		"istiod-0:15010": at(server.GRPC), "istiod-0:15012": at(server.SecureGRPC), "istiod-0:15014": at(server.Monitoring),
		"istiod-0:8080": at(server.HTTP), "istiod-0:9876": "127.0.0.1:" + port,
		"web-0:15000": admin.Listener.Addr().String(),
	})
	plain := []string{"--xds-address", server.GRPC, "--plaintext"}
	all := []command{
		{"proxy-status", "by the pod's port 15012, with a token", []string{"proxy-status"}, `web-0\.a\s`},
		{"proxy-status", "--xds-address --plaintext", append([]string{"proxy-status"}, plain...), `web-0\.a\s`},
		{"proxy-status POD", "by the pod's port 15012, with what the proxy was sent for its dump",
			[]string{"proxy-status", "web-0.a", "--file", dump}, `(?s)Clusters Match.*Listeners Match.*Routes Match`},
		{"version", "by the pod's port 15014", []string{"version"}, `(?m)^control plane version: 1\.31\.`},
		{"x version", "by the pod's port 15012", []string{"x", "version"}, `1\.31\.`},
		{"remote-clusters", "by the pod's port 15014", []string{"remote-clusters"}, `(?s)NAME.*Kubernetes|NAME\s+SECRET`},
		{"admin log", "by the pod's port 9876", []string{"admin", "log", "istiod-0", "--ctrlz_port", "9876"}, `(?s)ads.*kube`},
		{"admin log --level ads:debug", "by the pod's port 9876", []string{"admin", "log", "istiod-0", "--level", "ads:debug"}, `^`},
		{"admin log --reset", "by the pod's port 9876", []string{"admin", "log", "istiod-0", "--reset"}, `^`},
		{"analyze", "of what the charts and the mesh have", []string{"analyze", "-A"}, `(?s)No validation issues|Info|Warning`},
		{"x describe pod", "with what the proxy was sent for its dump", []string{"x", "describe", "pod", "web-0.a"}, `Pod: web-0\.a`},
		{"x describe service", "with what the proxies were sent for their dumps", []string{"x", "describe", "service", "web.a"},
			`Service: web\.a`},
		{"x check-inject", "", []string{"x", "check-inject", "web-0.a"}, `istio-sidecar-injector`},
		{"tag list", "", []string{"tag", "list"}, `(?s)TAG|No Istio revision tag`},
		{"tag set", "", []string{"tag", "set", "prod", "--revision", "default"}, `(?i)prod`},
	}
	for _, page := range pages() {
		all = append(all, command{"x internal-debug " + page, "by the pod's port 15012", []string{"x", "internal-debug", page}, `[\[{]`})
	}
	table := compat.Table{
		Title: "istioctl 1.31",
		About: "On a cluster of kube-apiserver and etcd with the charts installed. There is no kubelet: ports of the pod are forwarded in\n" +
			"front of the API server.",
		Head: []string{"command", "how", "result"},
	}
	for _, c := range all {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		cmd := exec.CommandContext(ctx, istioctl, append([]string{"--kubeconfig", kubeconfig, "--istioNamespace", "istio-system"}, c.args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		cancel()
		result := "works"
		if err != nil && c.name != "analyze" || !regexp.MustCompile(c.want).Match(out) || strings.Contains(string(out), "404 page not found") {
			result = "fails"
			t.Errorf("istioctl %s: %v: %.2000s", strings.Join(c.args, " "), err, out)
		}
		t.Logf("istioctl %s: %.600s", strings.Join(c.args, " "), out)
		table.Rows = append(table.Rows, []string{"`" + c.name + "`", c.about, result})
	}
	for _, page := range []string{"/debug", "/version"} {
		result := "works"
		if text, err := fetch(t.Context(), "http://"+server.Monitoring+page); err != nil || text == "" {
			result = "fails"
			t.Errorf("%s: %v %s", page, err, text)
		}
		table.Rows = append(table.Rows, []string{"`dashboard istiod-debug`, Kiali", "GET " + page + " of port 15014", result})
	}
	// What bug-report collects of each istiod.
	for page := range strings.FieldsSeq(
		"adsz authorizationz cachez clusterz configz endpointShardz endpointz inject krtz instancesz mcsz mesh networkz push_status registryz " +
			"resourcesz syncz telemetryz ambientz") {
		if text, err := fetch(t.Context(), "http://"+server.Monitoring+"/debug/"+page); err != nil || !json.Valid([]byte(text)) {
			t.Errorf("bug-report: %s: %v %.200s", page, err, text)
		}
	}
	table.Rows = append(table.Rows, []string{"`bug-report`",
		"its 19 debug pages by port 15014; it reads them by running a program in the pod, which needs a kubelet", "pages answer"},
		[]string{"`proxy-config`, `dashboard envoy`", "ask Envoy alone", "not tried"})
	if err := compat.Check(table); err != nil {
		t.Error(err)
	}
}

func fetch(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return string(text), err
}

// pod writes a pod that runs.
func pod(w *installed.World, namespace, name, container string, labels map[string]string) {
	w.T.Helper()
	_, err := w.ServiceAccount(w.Ctx, namespace, "default")
	w.Must(err)
	pods := w.Client().CoreV1().Pods(namespace)
	p, err := pods.Create(w.Ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels},
		Spec: corev1.PodSpec{ServiceAccountName: "default", NodeName: "node",
			Containers: []corev1.Container{{Name: container, Image: "x"}}},
	}, metav1.CreateOptions{})
	w.Must(err)
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "198.18.0.1", PodIPs: []corev1.PodIP{{IP: "198.18.0.1"}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: container, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		},
	}
	_, err = pods.UpdateStatus(w.Ctx, p, metav1.UpdateOptions{})
	w.Must(err)
}
