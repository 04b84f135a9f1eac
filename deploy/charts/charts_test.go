package charts

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var update = flag.Bool("update", false, "write the golden files anew")

func helms(t *testing.T) []Helm {
	t.Helper()
	all, err := Helms(t.TempDir(), os.DevNull)
	must.Succeed(t, err)
	return all
}

func chart(t *testing.T, name string) string {
	t.Helper()
	path, err := Chart(name)
	must.Succeed(t, err)
	return path
}

// template renders a chart with one Helm.
func template(t *testing.T, h Helm, args ...string) string {
	t.Helper()
	out, err := h.Run(t.Context(), append([]string{"template", "-n", "istio-system"}, args...)...)
	must.Succeed(t, err)
	return out
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLint(t *testing.T) {
	for _, h := range helms(t) {
		out, err := h.Run(t.Context(), "lint", "--strict", chart(t, "base"), chart(t, "istiod"), chart(t, "gateway"))
		if err != nil || !strings.Contains(out, "3 chart(s) linted, 0 chart(s) failed") {
			t.Errorf("%s: %v\n%s", h.Name, err, out)
		}
	}
}

// Each golden holds values, and the manifests that a chart renders with every Helm.
func TestGoldens(t *testing.T) {
	goldens(t, "testdata/*.txtar", "istiod", "istiod", checkMesh)
}

func TestGatewayGoldens(t *testing.T) {
	goldens(t, "testdata/gateway/*.txtar", "gateway", "istio-ingressgateway", nil)
}

func goldens(t *testing.T, glob, name, release string, check func(*testing.T, string)) {
	t.Helper()
	files, err := filepath.Glob(glob)
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			must.Succeed(t, err)
			values := write(t, string(a.Files[0].Data))
			for _, h := range helms(t) {
				out := template(t, h, release, chart(t, name), "-f", values)
				got := &txtar.Archive{Comment: a.Comment, Files: []txtar.File{a.Files[0], {Name: "manifests.yaml", Data: []byte(tidy(out))}}}
				if *update && h.Name == "helm4" {
					a = got
					must.Succeed(t, os.WriteFile(file, txtar.Format(got), 0o644))
				}
				if d := cmp.Diff(string(txtar.Format(a)), string(txtar.Format(got))); d != "" {
					t.Errorf("%s: %s", h.Name, d)
				}
				if check != nil {
					check(t, out)
				}
				if strings.Contains(out, "<no value>") || strings.Contains(out, "<nil>") {
					t.Errorf("%s: something is missing:\n%s", h.Name, out)
				}
			}
		})
	}
}

// templates matches the part of a ConfigMap with the injection templates, which are files of the chart.
var templates = regexp.MustCompile(`(?m)^    templates:\n(?: {6}.*\n|\n)+`)

// tidy removes the injection templates, and empty lines at the end of documents, in which releases of Helm differ.
func tidy(manifests string) string {
	manifests = templates.ReplaceAllString(manifests, "    templates: those of charts/istiod/files/injection\n")
	return strings.TrimSpace(regexp.MustCompile(`\n\s*\n---\n`).ReplaceAllString(manifests, "\n---\n")) + "\n"
}

// checkMesh checks the mesh configuration with the server's parser.
func checkMesh(t *testing.T, manifests string) {
	t.Helper()
	found := false
	for _, m := range objects[corev1.ConfigMap](t, manifests, "ConfigMap") {
		if m.Data["mesh"] == "" {
			continue
		}
		found = true
		_, findings := mesh.Parse("mesh", []byte(m.Data["mesh"]))
		_, more := mesh.ParseNetworks("meshNetworks", []byte(m.Data["meshNetworks"]))
		for _, f := range append(findings, more...) {
			t.Errorf("ConfigMap %s: %s", m.Name, f)
		}
	}
	if !found && strings.Contains(manifests, "kind: Deployment") {
		t.Error("no ConfigMap")
	}
}

// Unknown values are refused by name.
func TestTypos(t *testing.T) {
	for set, want := range map[string]string{
		"replicaCounts=3":                      "'replicaCounts' not allowed",
		"pilot.envs.A=b":                       "at '/pilot': additional properties 'envs' not allowed",
		"cpu.averageUtilization=50":            "at '/cpu': additional properties 'averageUtilization' not allowed",
		"resources.request.cpu=1":              "at '/resources': additional properties 'request' not allowed",
		"podDisruptionBudget.minAvailabel=1":   "'minAvailabel' not allowed",
		"env.A.b=c":                            "at '/env/A'",
		"autoscaleEnabled=yes":                 "at '/autoscaleEnabled': got string, want boolean",
		"replicaCount=two":                     "at '/replicaCount': got string, want integer",
		"global.imagePullPolicy=Sometimes":     "at '/global/imagePullPolicy'",
		"global.logAsJson=yes":                 "at '/global/logAsJson': got string, want boolean",
		"revision=Not_A_Label":                 "at '/revision'",
		"keepaliveMaxServerConnectionAge=30":   "at '/keepaliveMaxServerConnectionAge'",
		"meshConfig=text":                      "at '/meshConfig'",
		"podAnnotations.a=true":                "at '/podAnnotations/a': got boolean, want string",
		"ipFamilyPolicy=DualStack":             "at '/ipFamilyPolicy'",
		"drainSeconds=5s":                      "at '/drainSeconds': got string, want integer",
		"telemetry.v2.prometheus.enable=false": "'enable' not allowed",
		"revisionTags={Not_A_Label}":           "at '/revisionTags/0'",
		"cni.enable=true":                      "at '/cni': additional properties 'enable' not allowed",
		"global.proxy.statusPort=x":            "at '/global/proxy/statusPort'",
		"global.proxy.autoInject=on":           "at '/global/proxy/autoInject'",
		"sidecarInjectorWebhook.templates=a":   "at '/sidecarInjectorWebhook/templates'",
		"istiodRemote.injectionURL=http://a":   "at '/istiodRemote/injectionURL'",
		"global.platform=mars":                 `platform: "mars" is not known`,
		"global.resourceScope=galaxy":          "at '/global/resourceScope'",
		"global.proxy.tracer=openCensusAgent":  "at '/global/proxy/tracer'",
		"base.validationFailurePolicy=fail":    "at '/base/validationFailurePolicy'",
		"global.networkPolicy.enable=true":     "at '/global/networkPolicy': additional properties 'enable' not allowed",
		"global.networkPolcy.enabled=true":     "global.networkPolcy: no chart of a mesh has this value",
		"global.proxy.logLvl=debug":            "at '/global/proxy': additional properties 'logLvl' not allowed",
		"global.proxy.startupProbe.enable=a":   "at '/global/proxy/startupProbe': additional properties 'enable' not allowed",
		"global.tracer.zipkin.host=a":          "at '/global/tracer/zipkin': additional properties 'host' not allowed",
		"experimental.stablePolicy=true":       "at '/experimental': additional properties 'stablePolicy' not allowed",
		"gatewayClasses.istio.service=a":       "at '/gatewayClasses/istio/service'",
		"pilot.image=pilot":                    "image: pilot is Istio's own control plane",
		"pilot.hub=docker.io/istio":            "hub: docker.io/istio has Istio's own control plane",
		"hub=gcr.io/istio-release":             "hub: gcr.io/istio-release has Istio's own control plane",
		"hub=registry.istio.io/release":        "hub: registry.istio.io/release has Istio's own control plane",
		"pilot.image=docker.io/istio/pilot:1":  "image: docker.io/istio/pilot:1 is Istio's own control plane",
	} {
		for _, h := range helms(t) {
			out, err := h.Run(t.Context(), "template", chart(t, "istiod"), "--set", set)
			if err == nil {
				t.Errorf("%s takes %s:\n%s", h.Name, set, out)
			} else if !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %s: got %v, want %s", h.Name, set, err, want)
			}
		}
	}
	for set, want := range map[string]string{
		"kind=StatefulSet": "at '/kind'", "replicas=2": "'replicas' not allowed",
		"service.port=80":                  "at '/service': additional properties 'port' not allowed",
		"global.networkPolicy.enable=true": "at '/global/networkPolicy': additional properties 'enable' not allowed",
		"global.networkPolcy=true":         "global.networkPolcy: no chart of a mesh has this value",
		"autoscaling.min=2":                "'min' not allowed", "networkGatewayPorts.tls=80": "at '/networkGatewayPorts/tls'",
		"service.ports=null": "service.ports is empty",
	} {
		for _, h := range helms(t) {
			if _, err := h.Run(t.Context(), "template", chart(t, "gateway"), "--set", set); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %s: got %v, want %s", h.Name, set, err, want)
			}
		}
	}
	for set, want := range map[string]string{"base.enableCRDs=false": "'enableCRDs' not allowed",
		"excludedCRDs={a}":              "'excludedCRDs' not allowed",
		"global.enableReaderRBACs=true": "global.enableReaderRBACs: no chart of a mesh has this value"} {
		for _, h := range helms(t) {
			if _, err := h.Run(t.Context(), "template", chart(t, "base"), "--set", set); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %s: got %v, want %s", h.Name, set, err, want)
			}
		}
	}
}

// A parent chart sets global values, enables the charts by conditions, and passes values down.
func TestUmbrella(t *testing.T) {
	parent := t.TempDir()
	for name, text := range map[string]string{
		"Chart.yaml": `{apiVersion: v2, name: mesh, version: 1.0.0, dependencies: [
			{name: base, version: ">0.0.0-0", condition: base.enabled},
			{name: istiod, version: ">0.0.0-0", condition: istiod.enabled, tags: [mesh]}]}`,
		"values.yaml": `{global: {domain: example.org, team: {name: a}, hub: registry.example.org/mesh}, tags: {mesh: true},
			base: {enabled: true},
			istiod: {enabled: true, hub: registry.example.org/mine, autoscaleEnabled: false, replicaCount: 2, global: {logAsJson: true}}}`,
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(parent, name), []byte(text), 0o600))
	}
	for _, name := range []string{"base", "istiod"} {
		must.Succeed(t, os.CopyFS(filepath.Join(parent, "charts", name), os.DirFS(chart(t, name))))
	}
	for _, h := range helms(t) {
		out := template(t, h, "mesh", parent)
		for _, want := range []string{"replicas: 2", "image: \"registry.example.org/mine/istiod-lite:", "--log_as_json",
			"name: virtualservices.networking.istio.io"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %s", h.Name, want)
			}
		}
		if out = template(t, h, "mesh", parent, "--set", "istiod.enabled=false"); strings.Contains(out, "kind: Deployment") {
			t.Errorf("%s: the condition does not switch istiod off", h.Name)
		}
		if _, err := h.Run(t.Context(), "template", parent, "--set", "istiod.replicas=3"); err == nil ||
			!strings.Contains(err.Error(), "'replicas' not allowed") {
			t.Errorf("%s: a typo below the parent is taken: %v", h.Name, err)
		}
	}
}

// A value with two names has the same effect under both.
func TestPilotIsTheTop(t *testing.T) {
	for _, h := range helms(t) {
		set := func(prefix string) string {
			return template(t, h, "istiod", chart(t, "istiod"), "--set",
				prefix+"autoscaleEnabled=false,"+prefix+"env.A=b,"+prefix+"image=x,"+prefix+"revision=canary")
		}
		if d := cmp.Diff(set(""), set("pilot.")); d != "" {
			t.Errorf("%s: %s", h.Name, d)
		}
	}
}

func TestCustomResourcesCanBeLeftOut(t *testing.T) {
	for _, h := range helms(t) {
		names := func(args ...string) int {
			return strings.Count(template(t, h, append([]string{"base", chart(t, "base")}, args...)...), "kind: CustomResourceDefinition")
		}
		files, err := filepath.Glob(chart(t, "base") + "/files/crds/*.yaml")
		if err != nil || len(files) == 0 || names() != len(files) {
			t.Errorf("%s: %d of %d (%v)", h.Name, names(), len(files), err)
		}
		if n := names("--set", "base.excludedCRDs={wasmplugins.extensions.istio.io,sidecars.networking.istio.io}"); n != len(files)-2 {
			t.Errorf("%s: %d of %d with two left out", h.Name, n, len(files))
		}
		if n := names("--set", "base.enableCRDTemplates=false"); n != 0 {
			t.Errorf("%s: %d with all left out", h.Name, n)
		}
	}
}

// The notes name problems, and nothing else.
func TestNotes(t *testing.T) {
	ha := "autoscaleMin=2"
	for set, want := range map[string]string{
		ha:                                      "",
		"autoscaleEnabled=false,replicaCount=1": "There is one replica",
		ha + ",podDisruptionBudget.minAvailable=2":      "minAvailable 2 of 2 replicas",
		ha + ",pdb.minAvailable=100%":                   "minAvailable 100% of 2 replicas",
		ha + ",pdb.minAvailable=2,pdb.maxUnavailable=1": "",
		ha + ",pdb.minAvailable=null":                   "",
		ha + ",resources.requests.cpu=null":             "resources.requests.cpu",
		ha + ",replicaCount=3":                          "replicaCount has no effect",
		ha +
			",configMap=false,revision=canary": "create the ConfigMap istio-canary yourself",
		ha + ",global.istioNamespace=other": "The root namespace is other",
		ha +
			",gateways.a=b,cni.enabled=true,revisionTags={stable},profile=ambient": "no effect here: profile, gateways.a.",
		ha +
			",global.remotePilotAddress=x,global.jwtPolicy=third-party-jwt": "no effect here: global.jwtPolicy, global.remotePilotAddress.",
		ha +
			",global.configCluster=true,global.proxy.enableCoreDump=true": "no effect here: global.configCluster, global.proxy.enableCoreDump.",
		ha +
			",revision=canary,sidecarInjectorWebhook.enableNamespacesByDefault=true": "enableNamespacesByDefault has no effect here",
		ha +
			",sidecarInjectorWebhook.defaultTemplates={sidecar,mine}": "names mine, which does not exist",
		ha +
			",global.meshConfig.trustDomain=a": "global.meshConfig has no effect, as in Istio's chart",
		ha +
			",tag=1.30.2-distroless": "tag 1.30.2-distroless looks like a tag of Istio's",
		ha +
			",image=registry.example/mine/pilot:1": "has the name of Istio's own control plane",
		ha +
			",global.profile=demo,variant=distroless,global.waypoint.a=b": "no effect here: variant, global.profile, global.waypoint.",
		ha +
			",global.platform=gke,env.ENABLE_CLUSTER_TRUST_BUNDLE_API=true": "no effect here: platform.",
		ha + ",global.platform=openshift,global.proxy.tracer=zipkin,global.proxy_init.forceApplyIptables=true": "",
		ha +
			",global.network=network1": "kubectl label namespace istio-system topology.istio.io/network=network1",
		ha +
			",extraContainerArgs={--shutdownDuration=60s}": "--shutdownDuration in extraContainerArgs does not change",
		ha +
			",_internal_defaults_do_not_set.env.A=b,sidecarInjectorWebhook.rewriteAppHTTPProbe=true": "no effect here: " +
			"_internal_defaults_do_not_set.",
	} {
		for _, h := range helms(t) {
			if h.Name == "helm3" { // Helm 3 needs a cluster even for a dry run
				continue
			}
			out, err := h.Run(t.Context(), "install", "istiod", chart(t, "istiod"), "-n", "istio-system", "--dry-run=client", "--set", set)
			must.Succeed(t, err)
			_, notes, _ := strings.Cut(out, "\nNOTES:\n")
			_, problems, _ := strings.Cut(notes, "Please check:\n")
			lines := strings.Split(strings.TrimSpace(problems), "\n")
			// Without a cluster there are no custom resources, so that problem is always first.
			if !strings.Contains(lines[0], "helm install base charts/base -n istio-system") {
				t.Errorf("%s with %s: %q", h.Name, set, problems)
			}
			switch more := lines[1:]; {
			case want == "" && len(more) > 0, want != "" && (len(more) != 1 || !strings.Contains(more[0], want)):
				t.Errorf("%s with %s: got %q, want %q", h.Name, set, more, want)
			}
		}
	}
}

// The charts and the binary have the same version.
func TestVersions(t *testing.T) {
	for _, name := range []string{"base", "istiod", "gateway"} {
		for _, h := range helms(t) {
			out, err := h.Run(t.Context(), "show", "chart", chart(t, name))
			if err != nil || !strings.Contains(out, "\nversion: "+version.APILevel+"\n") ||
				!strings.Contains(out, "appVersion: "+version.APILevel+"\n") {
				t.Errorf("%s is not %s: %v\n%s", name, version.APILevel, err, out)
			}
		}
	}
}

// The values set the failurePolicy, for tools that render without a cluster.
func TestFailurePolicyOfValues(t *testing.T) {
	for _, h := range helms(t) {
		for _, name := range []string{"base", "istiod"} {
			for set, want := range map[string]string{
				"base.validationFailurePolicy=": "Ignore", "base.validationFailurePolicy=Fail": "Fail",
				"base.validationCABundle=YQ==": "Fail", "base.validationCABundle=YQ==,base.validationFailurePolicy=Ignore": "Fail",
			} {
				hooks := objects[admissionv1.ValidatingWebhookConfiguration](t, template(t, h, name, chart(t, name), "--set", set),
					"ValidatingWebhookConfiguration")
				if len(hooks) != 1 || string(*hooks[0].Webhooks[0].FailurePolicy) != want {
					t.Errorf("%s with %s: %+v", name, set, hooks)
				}
			}
		}
	}
}

// The account with which other control planes read a cluster can be replaced or left out.
func TestReader(t *testing.T) {
	for _, h := range helms(t) {
		other := template(t, h, "base", chart(t, "base"), "--set",
			"global.readerServiceAccount.name=mine,global.readerServiceAccount.namespace=there")
		bindings := objects[rbacv1.ClusterRoleBinding](t, other, "ClusterRoleBinding")
		if len(bindings) != 1 || bindings[0].Subjects[0].Name != "mine" || bindings[0].Subjects[0].Namespace != "there" ||
			strings.Contains(other, "kind: ServiceAccount\n") {
			t.Errorf("%s: %+v", h.Name, bindings)
		}
		none := template(t, h, "base", chart(t, "base"), "--set", "global.enableReaderRBAC=false")
		if strings.Contains(none, "istio-reader") {
			t.Errorf("%s: rights that nothing uses: %s", h.Name, none)
		}
	}
}
