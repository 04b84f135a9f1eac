//go:build compat

package charts

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/injector"
)

// tried are values of each annotation and label that Istio's templates read.
var tried = map[string][]string{
	"apm.datadoghq.com/env":                                 {`{"DD_A": "b"}`},
	"app":                                                   {"shop"},
	"app.kubernetes.io/name":                                {"shop"},
	"app.kubernetes.io/version":                             {"v1"},
	"istio.io/reroute-virtual-interfaces":                   {"net1,net2"},
	"k8s.v1.cni.cncf.io/networks":                           {"a", `[{"name": "a"}]`},
	"kubectl.kubernetes.io/default-container":               {"other"},
	"kubectl.kubernetes.io/default-logs-container":          {"other"},
	"networking.istio.io/tunnel":                            {"http"},
	"readiness.status.sidecar.istio.io/failureThreshold":    {"7"},
	"readiness.status.sidecar.istio.io/initialDelaySeconds": {"8"},
	"readiness.status.sidecar.istio.io/periodSeconds":       {"9"},
	"security.istio.io/tlsMode":                             {"disabled"},
	"service.istio.io/canonical-name":                       {"shop"},
	"service.istio.io/canonical-revision":                   {"v1"},
	"service.istio.io/workload-name":                        {"shop"},
	"sidecar.istio.io/agentLogLevel":                        {"default:debug"},
	"sidecar.istio.io/bootstrapOverride":                    {"mine"},
	"sidecar.istio.io/capNetBindService":                    {"true", "false"},
	"sidecar.istio.io/componentLogLevel":                    {"misc:info"},
	"sidecar.istio.io/interceptionMode":                     {"REDIRECT", "TPROXY", "NONE"},
	"sidecar.istio.io/logLevel":                             {"debug"},
	"sidecar.istio.io/nativeSidecar":                        {"true", "false", "yes"},
	"sidecar.istio.io/proxyCPU":                             {"7m"},
	"sidecar.istio.io/proxyCPULimit":                        {"8m"},
	"sidecar.istio.io/proxyImage":                           {"mine", "registry.example/mine:1"},
	"sidecar.istio.io/proxyMemory":                          {"7Mi"},
	"sidecar.istio.io/proxyMemoryLimit":                     {"8Mi"},
	"sidecar.istio.io/userVolume": {`{"certs":{"secret":{"secretName":"certs"}}}`,
		`[{"name":"certs","emptyDir":{}}]`, `{"certs":`, `"certs"`},
	"sidecar.istio.io/userVolumeMount": {`{"certs":{"mountPath":"/c","readOnly":false}}`,
		`[{"name":"certs","mountPath":"/c"}]`, `{"certs":`, `"certs"`},
	"status.sidecar.istio.io/port":                     {"15999", "0"},
	"traffic.sidecar.istio.io/excludeInboundPorts":     {"15020", "22, 23", ""},
	"traffic.sidecar.istio.io/excludeInterfaces":       {"eth1"},
	"traffic.sidecar.istio.io/excludeOutboundIPRanges": {"10.0.0.0/8"},
	"traffic.sidecar.istio.io/excludeOutboundPorts":    {"25"},
	"traffic.sidecar.istio.io/includeInboundPorts":     {"80,443", ""},
	"traffic.sidecar.istio.io/includeOutboundIPRanges": {"10.0.0.0/8", ""},
	"traffic.sidecar.istio.io/includeOutboundPorts":    {"80"},
	"traffic.sidecar.istio.io/kubevirtInterfaces":      {"net1"},
	"version": {"v1"},
}

// istioTemplates are the templates of both charts that pods get.
var istioTemplates = []string{"sidecar", "gateway", "grpc-agent"}

// read matches an annotation or a label that a template of Istio's reads.
var read = regexp.MustCompile("(Annotations|Labels|ObjectMeta) `([^`]+)`")

// TestAnnotationsAsIstio: an annotation or label has the same effect on a pod with this project's templates as with
// Istio's.
func TestAnnotationsAsIstio(t *testing.T) {
	istio, own := istioChart(t), ownChart(t, "istiod")
	for name, values := range map[string]string{
		"defaults": "global: {hub: registry.example, tag: 1.31.1}\n",
		"others":   "global: {hub: registry.example, tag: 1.31.1, proxy: {tracer: datadog}}\npilot: {cni: {enabled: true, provider: multus}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			theirs, ours := injectorOf(t, istio, values), injectorOf(t, own, values)
			names := map[string]bool{} // whether it is a label
			texts := theirs.Config().TemplateTexts()
			for _, template := range istioTemplates {
				for _, m := range read.FindAllStringSubmatch(texts[template], -1) {
					names[m[2]] = m[1] == "Labels"
				}
			}
			if len(names) < 30 {
				t.Fatalf("Istio's templates read %v", names)
			}
			for _, name := range slices.Sorted(maps.Keys(names)) {
				if len(tried[name]) == 0 {
					t.Errorf("%s is not tried", name)
				}
				for _, value := range tried[name] {
					for _, template := range istioTemplates {
						if template+" "+name == "grpc-agent sidecar.istio.io/bootstrapOverride" ||
							template+" "+name+"="+value == "grpc-agent status.sidecar.istio.io/port=0" {
							continue // a volume that nothing mounts, and a proxy without resources and mounts
						}
						p := podWith(template, name, value, names[name])
						for _, d := range differences(t, theirs, ours, p) {
							if template != "gateway" || !strings.HasPrefix(name, "readiness.status.") { // which are in force here
								t.Errorf("%s: %s=%s: %s", template, name, value, d)
							}
						}
					}
				}
			}
		})
	}
}

// istioChart returns the path of Istio's own chart of the control plane.
func istioChart(t *testing.T) string {
	t.Helper()
	chart := os.Getenv("ISTIO_CHART")
	if chart == "" {
		t.Fatal("ISTIO_CHART names Istio's own: `make compat` sets it")
	}
	return chart
}

func ownChart(t *testing.T, name string) string {
	t.Helper()
	chart, err := charts.Chart(name)
	must.Succeed(t, err)
	return chart
}

// injectorOf returns the server's injector with the ConfigMaps that a chart makes of values.
func injectorOf(t *testing.T, chart, values string) *injector.Injector {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(values), 0o600))
	helms, err := charts.Helms(t.TempDir(), os.DevNull)
	must.Succeed(t, err)
	manifests, err := helms[0].Run(t.Context(), "template", "istiod", chart, "-n", namespace, "-f", file)
	must.Succeed(t, err)
	i, err := charts.Injector(manifests)
	must.Succeed(t, err)
	return i
}

// podWith returns a pod, as JSON, for a template, with one annotation or label more.
func podWith(template, name, value string, label bool) []byte {
	labels, annotations := map[string]string{"version": "v0"}, map[string]string{"inject.istio.io/templates": template}
	switch {
	case label:
		labels[name] = value
	case name != "":
		annotations[name] = value
	}
	text, err := yaml.Marshal(map[string]any{
		"metadata": map[string]any{"name": "httpbin-1", "labels": labels, "annotations": annotations},
		"spec": map[string]any{"containers": []any{
			map[string]any{"name": "app", "image": "example/app", "ports": []any{map[string]any{"containerPort": 8080, "name": "http"}}},
			map[string]any{"name": "second", "image": "example/app"},
		}},
	})
	if err != nil {
		panic(err) // of a map of texts
	}
	text, err = yaml.YAMLToJSON(text)
	if err != nil {
		panic(err)
	}
	return text
}

// differences returns in which values two injectors make different pods of one.
func differences(t *testing.T, theirs, ours *injector.Injector, pod []byte) (list []string) {
	t.Helper()
	want, got := injected(t, theirs, pod), injected(t, ours, pod)
	for _, path := range slices.Sorted(maps.Keys(joined(want, got))) {
		if want[path] != got[path] && !deliberate(path) {
			list = append(list, path+": Istio's templates write "+want[path]+", this project's "+got[path])
		}
	}
	return list
}

// injected returns the values of a pod with its proxy.
func injected(t *testing.T, i *injector.Injector, pod []byte) map[string]string {
	t.Helper()
	r, err := i.Inject(t.Context(), injector.Request{Pod: pod, Namespace: "shop"})
	if err != nil {
		return map[string]string{"": "refused"}
	}
	return flat(map[string]any(r.Pod))
}

// deliberate reports whether this project's templates write a value of another form than Istio's, with the same effect.
func deliberate(path string) bool {
	return slices.ContainsFunc([]string{"/command[0]", "/fsGroup", "/env/order", "[workload-certs]/emptyDir"},
		func(p string) bool { return strings.HasSuffix(path, p) })
}
