package kube

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// The files of a small chart with the names and the objects of Istio's chart istiod, and of one of its chart gateway.
const (
	istiodChart = `apiVersion: v2
name: istiod
version: 1.31.0
appVersion: 1.31.0
keywords: [istio]
`
	istiodObjects = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: istiod
  labels: {app: istiod, istio.io/rev: default, istio: pilot, release: {{ .Release.Name }}, app.kubernetes.io/version: 1.31.0}
spec:
  selector: {matchLabels: {istio: pilot}}
  strategy: {rollingUpdate: {maxSurge: 100%, maxUnavailable: 25%}}
  template:
    metadata: {labels: {app: istiod, istio: pilot, istio.io/rev: default}}
    spec:
      serviceAccountName: istiod
      containers:
      - name: discovery
        image: docker.io/istio/pilot:1.31.0
        args: [discovery, "--monitoringAddr=:15014", --domain, cluster.local]
        env:
        {{- range $name, $value := .Values.pilot.env }}
        - {name: {{ $name }}, value: {{ $value | quote }}}
        {{- end }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: istiod}
spec:
  minReplicas: {{ .Values.pilot.autoscaleMin }}
  maxReplicas: 5
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: istiod}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio}
data:
  mesh: |
    defaultProviders: {metrics: [prometheus]}
    enablePrometheusMerge: true
    rootNamespace: istio-system
    trustDomain: cluster.local
    accessLogFile: {{ .Values.meshConfig.accessLogFile }}
`
	istiodOfUser = `
pilot:
  autoscaleMin: 2
  env: {PILOT_DEBOUNCE_AFTER: 200ms, PILOT_XDS_CACHE_SIZE: 1000}
meshConfig: {accessLogFile: /dev/stdout}
global: {proxy: {logLevel: info}}
`
	gatewayChart = `apiVersion: v2
name: gateway
version: 1.31.0
appVersion: 1.31.0
sources: [https://github.com/istio/istio]
`
	// plainGateway is a gateway that Helm has not installed.
	plainGateway = `
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: ingress, namespace: other, labels: {app: ingress, istio: ingress}}
spec:
  selector: {matchLabels: {app: ingress, istio: ingress}}
  template:
    metadata: {labels: {app: ingress, istio: ingress, sidecar.istio.io/inject: "true"}}
    spec:
      serviceAccountName: ingress
      containers: [{name: istio-proxy, image: auto}]
---
apiVersion: v1
kind: Service
metadata: {name: ingress, namespace: other, annotations: {team: edge}}
spec: {type: NodePort, selector: {app: ingress, istio: ingress}, ports: [{name: https, port: 443, targetPort: 8443, nodePort: 30443}]}
`
)

// TestMigrate: the command writes the values of an istiod and of gateways that run, as Helm stored them and as kubectl
// changed them. The chart of this tree is installed with them, and the values for the way back have them again. A user
// who may not list Secrets is told so.
func TestMigrate(t *testing.T) {
	t.Parallel()
	ctx, c := empty(t)
	dir := t.TempDir()
	write := func(path, text string) string {
		t.Helper()
		path = filepath.Join(dir, path)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	helms, err := charts.Helms(t.TempDir(), c.Kubeconfig())
	must.Succeed(t, err)
	helm := func(args ...string) string {
		t.Helper()
		out, err := helms[len(helms)-1].Run(ctx, args...)
		must.Succeed(t, err)
		return out
	}
	write("istiod/Chart.yaml", istiodChart)
	write("istiod/templates/all.yaml", istiodObjects)
	helm("install", "istiod", filepath.Join(dir, "istiod"), "-n", root, "--create-namespace", "-f", write("user.yaml", istiodOfUser))
	helm("upgrade", "istiod", filepath.Join(dir, "istiod"), "-n", root, "--reuse-values", "--set", "pilot.autoscaleMin=3")
	write("gateway/Chart.yaml", gatewayChart)
	helm("install", "front", filepath.Join(dir, "gateway"), "-n", "edge", "--create-namespace", "--set", "service.type=ClusterIP")
	must.Succeed(t, c.Apply(ctx, []byte(plainGateway)))
	_, err = c.Client().AppsV1().Deployments(root).Patch(ctx, "istiod", types.StrategicMergePatchType, []byte(`{"spec":{"template":{"spec":`+
		`{"containers":[{"name":"discovery","env":[{"name":"PILOT_DEBOUNCE_MAX","value":"20s"}]}]}}}}`), metav1.PatchOptions{})
	must.Succeed(t, err)

	run := func(kubeconfig string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, program, append([]string{"migrate", "--kubeconfig", kubeconfig}, args...)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 79) {
			t.Fatalf("%v: %v\n%s", args, err, stderr.String())
		}
		return string(out)
	}
	check := func(what, out string, wanted ...string) {
		t.Helper()
		for _, w := range wanted {
			if !regexp.MustCompile("(?m)" + w).MatchString(out) {
				t.Errorf("%s: no %q in\n%s", what, w, out)
			}
		}
	}
	verdict := run(c.Kubeconfig(), "-o", "wide")
	check("verdict", verdict, `it runs with env\.PILOT_DEBOUNCE_MAX, which the values of release istio-system/istiod do not set`,
		`^  PILOT_XDS_CACHE_SIZE=1000 has no effect here`, `^Values of chart gateway for front in namespace edge$`)
	if strings.Count(verdict, "PILOT_XDS_CACHE_SIZE") != 1 {
		t.Errorf("a variable has two lines:\n%s", verdict)
	}
	values := run(c.Kubeconfig(), "-o", "values")
	check("values", values, `^autoscaleMin: 3$`, `^  PILOT_DEBOUNCE_AFTER: 200ms$`, `^  PILOT_DEBOUNCE_MAX: 20s$`,
		`^  accessLogFile: /dev/stdout$`, `^    logLevel: info$`, `^# Values of charts/gateway, front in namespace edge$`, `^  type: ClusterIP$`,
		`^# Values of charts/gateway, ingress in namespace other$`, `^  type: NodePort$`, `nodePort: 30443`, `^    team: edge$`)
	if strings.Contains(values, "XDS_CACHE") {
		t.Errorf("a variable without an effect is among the values:\n%s", values)
	}

	own, err := charts.Chart("istiod")
	must.Succeed(t, err)
	for doc := range strings.SplitSeq(values, "\n---\n") {
		if strings.Contains(doc, "# Values of charts/istiod") {
			helm("install", "lite", own, "-n", root, "--set", "revision=lite,drainSeconds=9", "-f", write("lite.yaml", doc))
		}
	}
	back := run(c.Kubeconfig(), "--back")
	check("verdict of the way back", back, `^  drainSeconds has no effect there: `,
		`is the control plane to move back from, of revision lite, `)
	check("values of the way back", run(c.Kubeconfig(), "--back", "-o", "values"), `^# Values of Istio's chart istiod`,
		`^revision: lite$`, `^autoscaleMin: 3$`, `^  PILOT_DEBOUNCE_MAX: 20s$`, `^    logLevel: info$`)

	must.Succeed(t, c.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")))
	must.Succeed(t, c.Apply(ctx, []byte(reader)))
	access, err := c.ServiceAccount(ctx, "shop", "reader")
	must.Succeed(t, err)
	limited := filepath.Join(dir, "limited")
	must.Succeed(t, access.WriteFile(limited))
	check("without Secrets", run(limited), "this user may not list secrets")
}
