//go:build compat

package charts

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/injector"
	"github.com/istiod-lite/istiod-lite/injector/deployment/deploymenttest"
)

// istioValues are values of Istio's istiod chart.
func istioValues() map[string]string {
	return map[string]string{
		"defaults": "global: {hub: registry.example, tag: 1.31.1}\n",
		"custom": `
global:
  hub: registry.example
  tag: "1.0"
  imagePullPolicy: Always
  imagePullSecrets: [pull]
  meshID: mesh1
  network: net1
  multiCluster: {clusterName: east}
  logAsJson: true
  logging: {level: "default:info,ads:debug"}
  proxy:
    logLevel: info
    componentLogLevel: "misc:error"
    image: mine
    clusterDomain: mesh.local
    privileged: true
    statusPort: 15777
    includeIPRanges: 10.0.0.0/8
    excludeIPRanges: 10.9.0.0/16
    includeInboundPorts: "80,443"
    excludeInboundPorts: "22"
    excludeOutboundPorts: "25"
    startupProbe: {failureThreshold: 77}
    resources: {limits: {memory: 1Gi}}
    lifecycle: {preStop: {exec: {command: [sleep, "3"]}}}
    outlierLogPath: /dev/stdout
  proxy_init: {image: init}
sidecarInjectorWebhook:
  rewriteAppHTTPProbe: false
  injectedAnnotations: {example.com/injected: "yes"}
  neverInjectSelector: [{matchLabels: {never: "true"}}]
  defaultTemplates: [sidecar, extra]
  templates:
    extra: |
      metadata: {labels: {extra: "{{ .ObjectMeta.Namespace }}"}}
meshConfig:
  trustDomain: td.example
  defaultConfig: {holdApplicationUntilProxyStarts: true, concurrency: 3, proxyMetadata: {A: b}, image: {imageType: debug}}
`,
	}
}

// agreement is the least share of values with the same effect on pods.
const agreement = 0.999

// TestInjectedAsIstio has this server and istiod inject the pods of all goldens, both with the ConfigMaps that Istio's
// own chart makes of some values.
func TestInjectedAsIstio(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	istiod, chart := os.Getenv("ISTIOD"), os.Getenv("ISTIO_CHART")
	if istiod == "" || chart == "" {
		t.Fatal("ISTIOD and ISTIO_CHART name Istio's own: `make compat` sets them")
	}
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir()})
	must.Succeed(t, err)
	t.Cleanup(c.Stop)
	base, err := charts.Chart("base")
	must.Succeed(t, err)
	must.Succeed(t, c.InstallCRDs(ctx, filepath.Join(base, "files", "crds")))
	must.Succeed(t, c.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system}\n")))
	helms, err := charts.Helms(t.TempDir(), c.Kubeconfig())
	must.Succeed(t, err)
	pods := goldenPods(t)
	maps.Copy(pods, proxyConfigPods())
	must.Succeed(t, c.Apply(ctx, []byte(proxyConfigs)))
	for name, values := range istioValues() {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "values.yaml")
			must.Succeed(t, os.WriteFile(file, []byte(values), 0o600))
			manifests, err := helms[0].Run(ctx, "template", "istiod", chart, "-n", namespace, "-f", file)
			must.Succeed(t, err)
			for doc := range strings.SplitSeq("\n"+manifests, "\n---\n") {
				if !strings.Contains("\n"+doc, "\nkind: ConfigMap\n") {
					continue
				}
				must.Succeed(t, c.Apply(ctx, []byte(doc)))
			}
			theirs, ours := newInjector(ctx, t, c, istiod), newInjector(ctx, t, c, program)
			same, all := 0, 0
			for _, pod := range slices.Sorted(maps.Keys(pods)) {
				want, got := flat(theirs.inject(ctx, t, pods[pod])), flat(ours.inject(ctx, t, pods[pod]))
				for _, path := range slices.Sorted(maps.Keys(joined(want, got))) {
					all++
					if want[path] == got[path] {
						same++
					} else if all-same < 100 {
						t.Logf("%s: %s: istiod writes %q, this server %q", pod, path, want[path], got[path])
					}
				}
			}
			if share := float64(same) / float64(all); share < agreement {
				t.Errorf("%.4f of %d values in %d pods agree, want %.3f", share, all, len(pods), agreement)
			} else {
				t.Logf("%.4f of %d values in %d pods agree", share, all, len(pods))
			}
			if all < 100*len(pods) {
				t.Errorf("%d values in %d pods: too many were refused", all, len(pods))
			}
		})
	}
}

// goldenPods are the pods of the tests of injection, as JSON, by the name of the golden.
func goldenPods(t *testing.T) map[string][]byte {
	t.Helper()
	root, err := binaries.ModuleRoot()
	must.Succeed(t, err)
	pods := map[string][]byte{}
	for _, pattern := range []string{"injector/testdata/*.txtar", "deploy/charts/testdata/injection/*.txtar"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatal("no goldens", err)
		}
		for _, file := range files {
			a, err := txtar.ParseFile(file)
			must.Succeed(t, err)
			for _, f := range a.Files {
				name, isPod := strings.CutSuffix(f.Name, ".pod")
				if !isPod && f.Name != "pod.yaml" {
					continue
				}
				var pod corev1.Pod // as an API server has it, with all that its type writes
				must.Succeed(t, yaml.Unmarshal(f.Data, &pod))
				if pods[strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+name], err = json.Marshal(&pod); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return pods
}

// proxyConfigs are objects that the configuration of pods' proxies follows from.
const proxyConfigs = `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: {name: all, namespace: istio-system}
spec: {concurrency: 5, environmentVariables: {A: root, ROOT: root}}
---
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: {name: picked, namespace: istio-system}
spec: {selector: {matchLabels: {app: picked}}, environmentVariables: {NOWHERE: root}}
---
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: {name: all, namespace: shop}
spec: {environmentVariables: {A: namespace, NAMESPACE: namespace}, image: {imageType: debug}}
---
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: {name: picked, namespace: shop}
spec: {selector: {matchLabels: {app: picked}}, concurrency: 0, environmentVariables: {A: workload}}
`

// proxyConfigPods are pods to which these apply.
func proxyConfigPods() map[string][]byte {
	pods := map[string][]byte{}
	for name, text := range map[string]string{
		"none": `{"labels":{"app":"x"}}`, "picked": `{"labels":{"app":"picked"}}`,
		"annotated": `{"labels":{"app":"picked"},"annotations":{"proxy.istio.io/config":"{concurrency: 11, proxyMetadata: {A: annotation, ` +
			`Z: z}}"}}`,
		"namespaced": `{"labels":{"app":"x"},"annotations":{"proxy.istio.io/config":"{concurrency: 11, proxyMetadata: {A: annotation, Z: z}}"}}`,
		"type":       `{"labels":{"app":"x"},"annotations":{"sidecar.istio.io/proxyImageType":"distroless"}}`,
		"gateway":    `{"labels":{"app":"picked"},"annotations":{"inject.istio.io/templates":"gateway"}}`,
	} {
		pods["proxyconfigs/"+name] = []byte(`{"metadata":` + text + `,"spec":{"containers":[{"name":"app","image":"app","resources":{}}]}}`)
	}
	return pods
}

// webhook is a server that injects.
type webhook struct {
	url    string
	client *http.Client
}

// newInjector starts a server on the cluster, as its administrator, until the test ends.
func newInjector(ctx context.Context, t *testing.T, c *cluster.Cluster, binary string) *webhook {
	t.Helper()
	https := port(ctx, t)
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	must.Succeed(t, err)
	cmd := exec.CommandContext(ctx, binary, "discovery", "--kubeconfig", c.Kubeconfig(), "--httpsAddr", https, "--httpAddr", port(ctx, t),
		"--grpcAddr", port(ctx, t),
		"--secureGRPCAddr", port(ctx, t), "--monitoringAddr", port(ctx, t), "--ctrlz_port", "0")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = []string{"HOME=" + dir, "POD_NAME=istiod-0", "POD_NAMESPACE=" + namespace, "ENABLE_LEADER_ELECTION=false",
		"ENABLE_NATIVE_SIDECARS=true"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); _ = log.Close(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s said: %s", binary, tail(string(text)))
		}
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // The test trusts any server.
	t.Cleanup(transport.CloseIdleConnections)
	w := &webhook{"https://" + https, &http.Client{Transport: transport}}
	suite.Eventually(t, binary+" is ready", func() bool {
		select {
		case <-ended:
			t.Fatalf("%s ended", binary)
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/ready", nil)
		must.Succeed(t, err)
		resp, err := w.client.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return w
}

// inject returns the result for a pod: the patched pod, "refused" or "untouched".
func (w *webhook) inject(ctx context.Context, t *testing.T, pod []byte) any {
	t.Helper()
	body, err := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": map[string]any{
		"uid": "u", "operation": "CREATE", "namespace": "shop", "kind": map[string]string{"version": "v1", "kind": "Pod"},
		"resource": map[string]string{"version": "v1", "resource": "pods"}, "object": json.RawMessage(pod),
	}})
	must.Succeed(t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/inject", bytes.NewReader(body))
	must.Succeed(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	must.Succeed(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &answer); err != nil || answer.Response == nil {
		t.Fatalf("%s: %s", resp.Status, text)
	}
	switch {
	case !answer.Response.Allowed:
		return "refused"
	case len(answer.Response.Patch) == 0:
		return "untouched"
	}
	patch, err := jsonpatch.DecodePatch(answer.Response.Patch)
	must.Succeed(t, err)
	applied, err := patch.Apply(pod)
	if err != nil {
		t.Fatalf("%v: %s", err, answer.Response.Patch)
	}
	var out any
	must.Succeed(t, json.Unmarshal(applied, &out))
	return out
}

// flat returns the values of JSON by their paths. Named items of lists are found by name, and others by index. JSON in
// a text, such as an annotation or variable, is compared value by value.
func flat(v any) map[string]string {
	out := map[string]string{}
	flatten(out, "", v)
	return out
}

func flatten(out map[string]string, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			out[at] = "{}"
		}
		for k, x := range v {
			flatten(out, at+"/"+k, x)
		}
	case []any:
		if len(v) == 0 {
			out[at] = "[]"
		}
		var order []string
		for i, x := range v {
			name := fmt.Sprint(i)
			if m, ok := x.(map[string]any); ok && m["name"] != nil {
				name = fmt.Sprint(m["name"])
				order = append(order, name)
			}
			flatten(out, at+"["+name+"]", x)
		}
		if len(order) > 0 {
			out[at+"/order"] = strings.Join(order, " ")
		}
	case string:
		var inner any
		if strings.HasPrefix(v, "{") || strings.HasPrefix(v, "[") {
			if json.Unmarshal([]byte(v), &inner) == nil {
				flatten(out, at, inner)
				return
			}
		}
		out[at] = "text " + v
	default:
		out[at] = fmt.Sprint(v)
	}
}

func joined(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// TestGatewaysAsIstio renders the objects of Gateways with the template of Istio's own chart. Its template for
// waypoints, which reads the same fields, can be executed too.
func TestGatewaysAsIstio(t *testing.T) {
	chart := os.Getenv("ISTIO_CHART")
	if chart == "" {
		t.Fatal("ISTIO_CHART names Istio's own: `make compat` sets it")
	}
	helms, err := charts.Helms(t.TempDir(), "")
	must.Succeed(t, err)
	manifests, err := helms[0].Run(t.Context(), "template", "istiod", chart, "-n", namespace)
	must.Succeed(t, err)
	i, err := charts.Injector(manifests)
	must.Succeed(t, err)
	deploymenttest.Compare(t, "../../../injector/deployment/testdata/gateways.txtar", i)
	way := &gatewayv1.Gateway{}
	way.Name, way.Namespace = "way", "shop"
	made, err := i.Render(t.Context(), "waypoint", injector.Gateway{Gateway: way, GatewayClass: "istio-waypoint", DeploymentName: "way",
		ServiceAccount: "way", ServiceType: "ClusterIP", KubeVersion: 137})
	if err != nil || len(made) != 5 {
		t.Errorf("%d objects for a waypoint, %v", len(made), err)
	}
}
