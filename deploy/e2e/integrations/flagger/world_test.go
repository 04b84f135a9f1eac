package flagger

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var (
	canaries        = schema.GroupVersionResource{Group: "flagger.app", Version: "v1beta1", Resource: "canaries"}
	virtualServices = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
)

// prometheus scrapes each second the pods whose annotations ask for it, as in Istio's sample.
const prometheus = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: monitoring}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: prometheus}
rules:
- apiGroups: [""]
  resources: [pods]
  verbs: [get, watch, list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: prometheus}
subjects:
- {kind: ServiceAccount, name: prometheus, namespace: monitoring}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: prometheus, namespace: monitoring}
data:
  prometheus.yml: |
    global: {scrape_interval: 1s}
    scrape_configs:
    - job_name: kubernetes-pods
      kubernetes_sd_configs: [{role: pod}]
      relabel_configs:
      - {action: keep, source_labels: [__meta_kubernetes_pod_annotation_prometheus_io_scrape], regex: "true"}
      - {action: replace, source_labels: [__meta_kubernetes_pod_annotation_prometheus_io_path], regex: (.+), target_label: __metrics_path__}
      - {action: replace, source_labels: [__meta_kubernetes_namespace], target_label: namespace}
      - {action: replace, source_labels: [__meta_kubernetes_pod_name], target_label: pod}
      - action: replace
        source_labels: [__address__, __meta_kubernetes_pod_annotation_prometheus_io_port]
        regex: ([^:]+)(?::\d+)?;(\d+)
        replacement: $1:$2
        target_label: __address__
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: prometheus, namespace: monitoring}
spec:
  selector:
    matchLabels: {app: prometheus}
  template:
    metadata:
      labels: {app: prometheus}
    spec:
      serviceAccountName: prometheus
      containers:
      - name: prometheus
        image: prom/prometheus:v3
        args: [--config.file=/etc/prometheus/prometheus.yml, --storage.tsdb.path=/prometheus]
        readinessProbe:
          httpGet: {path: /-/ready, port: 9090}
        volumeMounts:
        - {name: config, mountPath: /etc/prometheus}
        - {name: data, mountPath: /prometheus}
      volumes:
      - name: config
        configMap: {name: prometheus}
      - name: data
        emptyDir: {}
---
apiVersion: v1
kind: Service
metadata: {name: prometheus, namespace: monitoring}
spec:
  selector: {app: prometheus}
  ports:
  - {name: http, port: 9090}
`

// shop has a client, and the Canary of the application. Its checks query the requests that sidecars have passed on.
// Flagger's own checks query istio_requests_total, and only Istio's builds of Envoy have the filter that makes this
// metric. Flagger requires an interval of at least ten seconds.
const shop = `
apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels: {istio-injection: enabled}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec:
  mtls: {mode: STRICT}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: client, namespace: shop}
spec:
  selector:
    matchLabels: {app: client}
  template:
    metadata:
      labels: {app: client}
    spec:
      containers:
      - {name: client, image: example.com/echo-advanced:1}
---
apiVersion: flagger.app/v1beta1
kind: MetricTemplate
metadata: {name: success-rate, namespace: shop}
spec:
  provider: {type: prometheus, address: http://prometheus.monitoring:9090}
  query: |
    100 * (sum(rate(envoy_cluster_upstream_rq{
      namespace="{{ namespace }}", pod=~"{{ target }}-[0-9a-z]+-[0-9a-z]+", cluster_name=~"inbound.*", response_code_class="2xx"
    }[{{ interval }}])) or vector(0))
    / sum(rate(envoy_cluster_upstream_rq{
      namespace="{{ namespace }}", pod=~"{{ target }}-[0-9a-z]+-[0-9a-z]+", cluster_name=~"inbound.*", response_code_class!=""
    }[{{ interval }}]))
---
apiVersion: flagger.app/v1beta1
kind: MetricTemplate
metadata: {name: duration, namespace: shop}
spec:
  provider: {type: prometheus, address: http://prometheus.monitoring:9090}
  query: |
    histogram_quantile(0.99, sum by (le) (rate(envoy_cluster_upstream_rq_time_bucket{
      namespace="{{ namespace }}", pod=~"{{ target }}-[0-9a-z]+-[0-9a-z]+", cluster_name=~"inbound.*"
    }[{{ interval }}])))
---
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: web, namespace: shop}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  service:
    port: 80
    targetPort: 8080
    portName: http
  analysis:
    interval: 10s
    threshold: 2
    maxWeight: 60
    stepWeight: 30
    metrics:
    - name: success-rate
      templateRef: {name: success-rate}
      thresholdRange: {min: 99}
      interval: 10s
    - name: duration
      templateRef: {name: duration}
      thresholdRange: {max: 2000}
      interval: 10s
---
`

// web is the application. VERSION is its version, and STATUS the status of its answers. When its pod is
// deleted, it goes on serving for some seconds, so that no request is lost.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
      annotations: {sidecar.istio.io/statsInclusionPrefixes: cluster.inbound}
    spec:
      containers:
      - name: web
        image: example.com/echo-advanced:VERSION
        args: [--status=STATUS]
        ports:
        - {name: http, containerPort: 8080}
        lifecycle:
          preStop: {sleep: {seconds: 4}}
`

// world is a cluster with a node, on which the control plane, Prometheus and Flagger run.
type world struct {
	*install.World
	ctx context.Context
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{ctx: t.Context()}
	programs := os.Getenv(install.DirVar)
	w.World = install.New(t, install.Options{Network: network, Image: func(name string) (node.Image, bool) {
		switch {
		case strings.Contains(name, "/flagger:"):
			return node.Image{Files: map[string]string{"/flagger": filepath.Join(programs, "flagger")}}, true
		case strings.Contains(name, "/prometheus:"):
			return install.Image("prometheus", "prometheus"), true
		}
		return node.Image{}, false
	}})
	w.Write(prometheus)
	w.installFlagger(t)
	w.Ready("istio-system", "istiod")
	w.Ready("monitoring", "prometheus")
	w.Ready("default", "flagger")
	return w
}

// installFlagger applies Flagger's manifests. Their probes run wget, which is in Flagger's image, and are replaced by
// one probe of the node over HTTP.
func (w *world) installFlagger(t *testing.T) {
	t.Helper()
	objects, err := cluster.Parse([]byte(w.File("flagger.yaml")))
	must.Succeed(t, err)
	var all strings.Builder
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			var d appsv1.Deployment
			must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d))
			c := &d.Spec.Template.Spec.Containers[0]
			c.Command = append(c.Command, "-metrics-server=http://prometheus.monitoring:9090", "-control-loop-interval=1s")
			c.LivenessProbe, c.ReadinessProbe = nil, &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")},
			}}
			o.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&d)
			must.Succeed(t, err)
		}
		text, err := yaml.Marshal(o.Object)
		must.Succeed(t, err)
		all.WriteString("\n---\n" + string(text))
	}
	w.Write(all.String())
}

// deploy deploys a version of the application. Flagger owns the number of replicas.
func (w *world) deploy(t *testing.T, version, status string) {
	t.Helper()
	template := `{"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "example.com/echo-advanced:` + version +
		`", "args": ["--status=` + status + `"]}]}}}}`
	_, err := w.Client().AppsV1().Deployments("shop").
		Patch(w.ctx, "web", types.StrategicMergePatchType, []byte(template), metav1.PatchOptions{})
	must.Succeed(t, err)
}

// canary returns the phase of the Canary, and the weights of the VirtualService.
func (w *world) canary(t *testing.T) (phase string, weights []int64) {
	t.Helper()
	o, err := w.Dynamic().Resource(canaries).Namespace("shop").Get(w.ctx, "web", metav1.GetOptions{})
	must.Succeed(t, err)
	phase, _, _ = unstructured.NestedString(o.Object, "status", "phase")
	if o, err = w.Dynamic().Resource(virtualServices).Namespace("shop").Get(w.ctx, "web", metav1.GetOptions{}); err != nil {
		return phase, nil
	}
	routes, _, _ := unstructured.NestedSlice(o.Object, "spec", "http")
	for _, r := range routes {
		to, _, _ := unstructured.NestedSlice(r.(map[string]any), "route")
		for _, d := range to {
			weight, _, _ := unstructured.NestedInt64(d.(map[string]any), "weight")
			weights = append(weights, weight)
		}
	}
	return phase, weights
}

// kind returns the version and the status of an answer. The version "proxy" is an answer that no workload gave.
func kind(answer string) string {
	version := "proxy"
	if _, pod, ok := strings.Cut(answer, "Hostname=web-"); ok {
		version = "canary"
		if strings.HasPrefix(pod, "primary-") {
			version = "primary"
		}
	}
	return version + " " + install.StatusCode(answer)
}
