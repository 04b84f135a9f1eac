//go:build compat

package charts

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/settings"
	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/injector"
)

// TestValuesOfIstio sets each value of Istio's charts. If the value changes the output of Istio's chart, it changes the
// output of this project's chart, or the chart refuses the value, or its notes name it. Pods change in the same way.
func TestValuesOfIstio(t *testing.T) {
	istio := istioChart(t)
	others := istioCharts(t, istio)
	for _, chart := range []struct {
		name, istio string
		values      map[string]string // of values by path, as YAML, where no other can be made up from the default
	}{
		{"istiod", istio, istiodValues},
		{"base", filepath.Join(others, "base"), baseValues},
		{"gateway", filepath.Join(others, "gateway"), gatewayValues},
	} {
		t.Run(chart.name, func(t *testing.T) {
			own := ownChart(t, chart.name)
			theirBase, ourBase := renderValue(t, chart.name, chart.istio, "", ""), renderValue(t, chart.name, own, "", "")
			if theirBase.err != nil || ourBase.err != nil {
				t.Fatal(theirBase.err, ourBase.err)
			}
			all := valuesOf(t, chart.istio)
			for path := range chart.values {
				if _, ok := all[path]; !ok {
					all[path] = nil
				}
			}
			tried := 0
			var named []string
			for _, path := range slices.Sorted(maps.Keys(all)) {
				value, ok := chart.values[path]
				if !ok {
					value = another(all[path])
				}
				if value == "" {
					continue // Istio's chart refuses it, or it is part of another that is tried
				}
				theirs := renderValue(t, chart.name, chart.istio, path, value)
				if theirs.err != nil {
					t.Errorf("%s: %s: Istio's chart refuses it, so it is not tried: %v", path, value, theirs.err)
					continue
				}
				if theirs.manifests == theirBase.manifests && reflect.DeepEqual(theirs.pods, theirBase.pods) {
					continue // Istio's chart does nothing with it either
				}
				tried++
				ours := renderValue(t, chart.name, own, path, value)
				row := rowOf(chart.name, path)
				if row == nil {
					t.Errorf("%s: api/settings/values.txt has no row for it", path)
					continue
				}
				works := row.Effect == settings.Works
				if !works && names(ours, ourBase, path) {
					named = append(named, path)
					continue
				}
				if ours.err != nil {
					t.Errorf("%s: %s: it works by the table: %v, and is refused: %v", path, value, works, ours.err)
					continue
				}
				if works && idle(ours, path) {
					t.Errorf("%s: it works by api/settings/values.txt, and has no effect by the notes", path)
				}
				if ours.manifests == ourBase.manifests && reflect.DeepEqual(ours.pods, ourBase.pods) {
					t.Errorf("%s: %s: it has no effect, and nothing says so", path, value)
				}
				if better[path] {
					continue
				}
				for pod := range theirs.pods {
					for _, d := range changesAlike(theirBase.pods[pod], theirs.pods[pod], ourBase.pods[pod], ours.pods[pod]) {
						t.Errorf("%s: %s: %s: %s", path, value, pod, d)
					}
				}
			}
			t.Logf("%d values have an effect under Istio; these are refused or named here: %v", tried, named)
			if tried < 30 && chart.name != "base" {
				t.Errorf("only %d values have an effect under Istio", tried)
			}
		})
	}
}

// rendered is the output of a chart for some values.
type rendered struct {
	err       error
	manifests string
	notes     string
	pods      map[string]map[string]string // the values of injected pods and of the objects of a Gateway, by name
}

// renderValue returns the output of a chart with one value set. The values for injection templates are left out of the
// manifests, because they only affect pods.
func renderValue(t *testing.T, name, chart, path, value string) rendered {
	t.Helper()
	text, base := "{}", "{}"
	if path != "" {
		text = at(path, value)
	}
	if name == "istiod" { // the images of proxies, whose defaults differ
		base = "global: {hub: registry.example, tag: 1.31.1}\n"
	}
	dir := t.TempDir()
	file, first := filepath.Join(dir, "values.yaml"), filepath.Join(dir, "base.yaml")
	must.Succeed(t, errors.Join(os.WriteFile(file, []byte(text), 0o600), os.WriteFile(first, []byte(base), 0o600)))
	helms, err := charts.Helms(t.TempDir(), os.DevNull)
	must.Succeed(t, err)
	out, err := helms[len(helms)-1].Run(t.Context(), "install", name, chart, "-n", namespace, "--dry-run=client", "-f", first, "-f", file)
	if err != nil {
		return rendered{err: err}
	}
	_, out, _ = strings.Cut(out, "\nMANIFEST:\n")
	r := rendered{}
	r.manifests, r.notes, _ = strings.Cut(out, "\nNOTES:\n")
	if name == "istiod" {
		if i, err := charts.Injector(r.manifests); err == nil {
			r.pods = podsOf(t, i)
		}
	}
	r.manifests = valuesTexts.ReplaceAllString(r.manifests, "")
	return r
}

// valuesTexts matches the keys of ConfigMaps that hold values as they were given.
var valuesTexts = regexp.MustCompile(`(?m)^  (values|original-values|merged-values): \|-\n(?: {4}.*\n|\n)+`)

// podsOf returns the fields of the pods that each template makes.
func podsOf(t *testing.T, i *injector.Injector) map[string]map[string]string {
	t.Helper()
	pods := map[string]map[string]string{}
	for _, template := range istioTemplates {
		pods[template] = injected(t, i, podWith(template, "", "", false))
	}
	pods["native"] = injected(t, i, podWith("sidecar", "sidecar.istio.io/nativeSidecar", "true", false))
	gw := &gatewayv1.Gateway{}
	gw.Name, gw.Namespace = "gw", "shop"
	made, err := i.Render(t.Context(), injector.GatewayTemplate, injector.Gateway{
		Gateway: gw, GatewayClass: "istio", DeploymentName: "gw", ServiceAccount: "gw", ServiceType: "LoadBalancer", KubeVersion: 137,
	})
	must.Succeed(t, err)
	objects := map[string]any{}
	for _, o := range made {
		objects[fmt.Sprint(o["kind"])] = o
	}
	pods[injector.GatewayTemplate] = flat(objects)
	return pods
}

// changesAlike returns in which values a change of Istio's pod differs from the change of this project's.
func changesAlike(theirBase, theirs, ourBase, ours map[string]string) (list []string) {
	for _, path := range slices.Sorted(maps.Keys(joined(joined(theirBase, theirs), joined(ourBase, ours)))) {
		if deliberate(path) || theirBase[path] == theirs[path] && ourBase[path] == ours[path] || theirs[path] == ours[path] {
			continue
		}
		list = append(list, fmt.Sprintf("%s: by Istio's chart from %q to %q, by this project's from %q to %q", path, theirBase[path],
			theirs[path], ourBase[path], ours[path]))
	}
	return list
}

// names reports whether the chart refuses a value by its name, or names it in notes that are not there without it.
func names(r, base rendered, path string) bool {
	said := r.notes
	if r.err != nil {
		said = r.err.Error()
	} else if said == base.notes {
		return false
	}
	parts := strings.Split(strings.TrimPrefix(path, "pilot."), ".")
	for i := range parts { // notes name a value by its path, or by the path of an object that has it
		if r.err != nil && strings.Contains(said, "'"+parts[i]+"'") || strings.Contains(said, strings.Join(parts[:i+1], ".")) &&
			!strings.Contains(base.notes, strings.Join(parts[:i+1], ".")) {
			return true
		}
	}
	return strings.Contains(said, "/"+strings.Join(parts, "/"))
}

// idle reports whether the notes list a value, or an object that has it, as without effect.
func idle(r rendered, path string) bool {
	_, list, _ := strings.Cut(r.notes, "have no effect here: ")
	list, _, _ = strings.Cut(list, "\n")
	return slices.ContainsFunc(strings.Split(strings.TrimSuffix(list, "."), ", "), func(named string) bool {
		return strings.HasPrefix(strings.TrimPrefix(path, "pilot.")+".", named+".")
	})
}

// rowOf returns the row of the table of settings for a value of a chart, or for one that it is part of. It returns nil
// if there is none.
func rowOf(chart, path string) *settings.Setting {
	for path = strings.TrimPrefix(path, "pilot."); ; path = path[:strings.LastIndexByte(path, '.')] {
		if row := settings.Find(settings.Values(), chart+":"+path); row != nil || !strings.Contains(path, ".") {
			return row
		}
	}
}

// dot is written for a dot in a part of a path.
const dot = "__"

// at returns YAML with a value at a path, whose parts have dots between.
func at(path, value string) string {
	parts := strings.Split(path, ".")
	for _, p := range slices.Backward(parts) {
		value = "{" + strings.ReplaceAll(p, dot, ".") + ": " + value + "}"
	}
	return value
}

// valuesOf returns the leaf values of a chart, by path, with their defaults, and the values that only its templates
// name.
func valuesOf(t *testing.T, chart string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	must.Succeed(t, err)
	var all struct {
		Values map[string]any `json:"_internal_defaults_do_not_set"`
	}
	must.Succeed(t, yaml.Unmarshal(text, &all))
	leaves := map[string]any{}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		if m, ok := v.(map[string]any); ok && len(m) > 0 {
			for k, x := range m {
				walk(strings.TrimPrefix(at+"."+strings.ReplaceAll(k, ".", dot), "."), x)
			}
			return
		}
		leaves[at] = v
	}
	walk("", all.Values)
	for _, pattern := range []string{"templates/*", "files/*injection-template.yaml", "files/grpc-*.yaml", "files/kube-gateway.yaml"} {
		files, err := filepath.Glob(filepath.Join(chart, pattern))
		must.Succeed(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			must.Succeed(t, err)
			for _, m := range mentioned.FindAllStringSubmatch(string(text), -1) {
				path := m[1] + m[2]
				prefix := func(p string) bool {
					return p == path || strings.HasPrefix(p, path+".") || strings.HasPrefix(path, p+".")
				}
				if !strings.HasPrefix(path, "_") && path != "defaults" && !slices.ContainsFunc(slices.Collect(maps.Keys(leaves)), prefix) {
					leaves[path] = nil
				}
			}
		}
	}
	return leaves
}

// mentioned matches a value that a template reads.
var mentioned = regexp.MustCompile(`\.Values\.([\w.]*\w)\)*((?:\.\w+)*)`)

// another returns, as YAML, a value other than the default, of its type.
func another(v any) string {
	switch v := v.(type) {
	case bool:
		return fmt.Sprint(!v)
	case float64:
		return fmt.Sprint(v + 1)
	case []any:
		return "[x]"
	case map[string]any:
		return "{x: z}"
	}
	return "x"
}

// better are values for which this project's pods improve on Istio's: the name of a ConfigMap reaches them, pull
// secrets come from an account, and unset volumes are not mounted. A release for a cluster whose control plane is in
// another one has no templates, because that control plane has them.
var better = map[string]bool{
	"crlConfigMapName": true, "global.imagePullSecrets": true, "global.pilotCertProvider": true, "pilot.crlConfigMapName": true,
	"istiodRemote.enabled": true,
}

// istioCharts returns the folder of Istio's other charts, of the release that a chart is of.
func istioCharts(t *testing.T, chart string) string {
	t.Helper()
	stamps, err := filepath.Glob(chart + ".v*")
	if err != nil || len(stamps) != 1 {
		t.Fatal("the release of Istio's chart is not known: ", stamps, err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "istio.io/istio@"+strings.TrimPrefix(stamps[0], chart+"."))
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err, string(out))
	}
	var module struct{ Dir string }
	must.Succeed(t, json.Unmarshal(out, &module))
	return filepath.Join(module.Dir, "manifests", "charts")
}

// istiodValues are values of Istio's chart of the control plane. Some need other values to have an effect.
var istiodValues = map[string]string{
	"affinity":                                     "{nodeAffinity: {}}",
	"base.validationFailurePolicy":                 "Fail",
	"base.validationURL":                           "https://istiod.example/validate",
	"certificates":                                 "[]",
	"cni.provider":                                 "multus, enabled: true",
	"compatibilityVersion":                         `"1.30"`,
	"envVarFrom":                                   "[{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
	"gatewayClasses":                               "{istio: {service: {spec: {type: ClusterIP}}}}",
	"gateways.seccompProfile":                      "{type: RuntimeDefault}",
	"gateways.securityContext":                     "{runAsUser: 7}",
	"global.caName":                                "GkeWorkloadCertificate",
	"global.imagePullPolicy":                       "Always",
	"global.ipFamilies":                            "[IPv6]",
	"global.ipFamilyPolicy":                        "PreferDualStack",
	"global.istiod.enableAnalysis":                 "true",
	"global.logging.level":                         "default:debug",
	"global.meshNetworks":                          "{n: {endpoints: [{fromRegistry: r}], gateways: [{address: 1.1.1.1, port: 80}]}}",
	"global.mountMtlsCerts":                        "true",
	"global.networkPolicy.enabled":                 "true",
	"global.platform":                              "openshift",
	"global.profile":                               "demo",
	"global.proxy.autoInject":                      "disabled",
	"global.proxy.capNetBindService":               `"true"`,
	"global.proxy.holdApplicationUntilProxyStarts": "true",
	"global.proxy.lifecycle":                       "{preStop: {exec: {command: [sleep]}}}",
	"global.proxy.logLevel":                        "debug",
	"global.proxy.seccompProfile":                  "{type: RuntimeDefault}",
	"global.proxy.tracer":                          "zipkin",
	"global.resourceScope":                         "namespace",
	"global.sts.servicePort":                       "15463",
	"global.tracer.datadog":                        "{address: a:1}",
	"global.tracer.stackdriver":                    "",
	"global.tracer.zipkin":                         "{address: a:1}",
	"initContainers":                               "[{name: a, image: b}]",
	"ipFamilies":                                   "[IPv6]",
	"ipFamilyPolicy":                               "PreferDualStack",
	"istiodRemote.injectionPath":                   "/inject/net/n",
	"istiodRemote.injectionURL":                    "https://a.example/inject",
	"keepaliveMaxServerConnectionAge":              "40m",
	"memory":                                       "{targetAverageUtilization: 70}",
	"memory.targetAverageUtilization":              "70",
	"meshConfig.defaultProviders":                  "{accessLogging: [envoy]}",
	"nodeSelector":                                 "{a: b}",
	"pdb.maxUnavailable":                           "2",
	"pdb.minAvailable":                             "2",
	"pdb.unhealthyPodEvictionPolicy":               "AlwaysAllow",
	"pilot.cni.enabled":                            "true",
	"pilot.env.ENABLE_CLUSTER_TRUST_BUNDLE_API":    "true",
	"platform":                                     "openshift",
	"profile":                                      "preview",
	"revisionTags":                                 "[stable]",
	"rollingMaxSurge":                              "50%",
	"rollingMaxUnavailable":                        "50%",
	"seccompProfile":                               "{type: Localhost, localhostProfile: a}",
	"sidecarInjectorWebhook.alwaysInjectSelector":  "[{matchLabels: {a: b}}]",
	"sidecarInjectorWebhook.neverInjectSelector":   "[{matchLabels: {a: b}}]",
	"sidecarInjectorWebhook.injectedAnnotations":   "{a: b}",
	"sidecarInjectorWebhook.reinvocationPolicy":    "IfNeeded",
	"sidecarInjectorWebhook.templates":             `{mine: "spec: {}"}`,
	"terminationMessagePolicy":                     "FallbackToLogsOnError",
	"tolerations":                                  "[{key: a}]",
	"topologySpreadConstraints":                    "[{maxSkew: 1}]",
	"trafficDistribution":                          "PreferClose",
	"volumeMounts":                                 "[{name: a, mountPath: /a}]",
	"volumes":                                      "[{name: a}]",
}

var baseValues = map[string]string{
	"base.validationFailurePolicy": "Fail",
	"compatibilityVersion":         `"1.30"`,
	"global.enableReaderRBAC":      "false",
	"global.platform":              "openshift",
	"global.profile":               "stable",
	"global.readerServiceAccount":  "{name: mine}",
	"global.resourceScope":         "cluster",
	"platform":                     "openshift",
	"profile":                      "stable",
}

var gatewayValues = map[string]string{
	"networkGatewayPorts.status-port.targetPort":    "",
	"networkGatewayPorts.tls-istiod.targetPort":     "",
	"networkGatewayPorts.tls-webhook.targetPort":    "",
	"networkGatewayPorts.tls.targetPort":            "",
	"additionalContainers":                          "[{name: a, image: b}]",
	"affinity":                                      "{nodeAffinity: {}}",
	"annotations":                                   "{a: b}",
	"autoscaling.autoscaleBehavior":                 "{scaleDown: {}}",
	"autoscaling.targetMemoryUtilizationPercentage": "70",
	"compatibilityVersion":                          `"1.30"`,
	"dnsConfig":                                     "{nameservers: [1.1.1.1]}",
	"dnsPolicy":                                     "Default",
	"envVarFrom":                                    "[{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
	"global.networkPolicy.enabled":                  "true",
	"global.platform":                               "openshift",
	"global.profile":                                "demo",
	"imagePullPolicy":                               "Always",
	"imagePullSecrets":                              "[{name: a}]",
	"initContainers":                                "[{name: a, image: b}]",
	"kind":                                          "DaemonSet",
	"minReadySeconds":                               "7",
	"nodeSelector":                                  "{a: b}",
	"ownerName":                                     "",
	"podDisruptionBudget":                           "{minAvailable: 1}",
	"replicaCount":                                  "3",
	"service.allocateLoadBalancerNodePorts":         "false",
	"service.externalIPs":                           "[1.1.1.1]",
	"service.externalTrafficPolicy":                 "Local",
	"service.healthCheckNodePort":                   "30000",
	"service.internalTrafficPolicy":                 "Local",
	"service.ipFamilies":                            "[IPv6]",
	"service.ipFamilyPolicy":                        "PreferDualStack",
	"service.loadBalancerClass":                     "a/b",
	"service.ports":                                 "[{name: a, port: 80}]",
	"service.selectorLabels":                        "{a: b}",
	"service.type":                                  "ClusterIP",
	"serviceAccount.annotations":                    "{a: b}",
	"tolerations":                                   "[{key: a}]",
	"topologySpreadConstraints":                     "[{maxSkew: 1}]",
	"volumeMounts":                                  "[{name: a, mountPath: /a}]",
	"volumes":                                       "[{name: a}]",
}
