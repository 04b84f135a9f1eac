package charts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// mesh is the values file of an Istio user.
const mesh = `
global:
  hub: registry.example.org/istio
  tag: 1.31.1
  meshID: mesh1
  proxy: {resources: {requests: {cpu: 10m}}, excludeIPRanges: 10.0.0.0/8}
meshConfig:
  accessLogFile: /dev/stdout
  defaultConfig: {holdApplicationUntilProxyStarts: true}
pilot: {autoscaleMin: 2, env: {ISTIOD_CUSTOM_HOST: 127.0.0.1}}
sidecarInjectorWebhook: {neverInjectSelector: [{matchLabels: {never: "true"}}]}
`

// port returns a port of loopback, as host:port.
func port(ctx context.Context, t *testing.T) string {
	t.Helper()
	p, err := freeport.Pick(ctx, "127.0.0.1")
	must.Succeed(t, err)
	return net.JoinHostPort("127.0.0.1", p)
}

// serve runs the pod of a revision's Deployment, with its webhooks at an address, until the test ends.
func (w *world) serve(ctx context.Context, t *testing.T, name, https string) {
	t.Helper()
	i := &installed.World{Cluster: w.Cluster, T: t, Ctx: ctx}
	i.Launch(program, name, name+"-0", "--httpsAddr="+https, "--drainDuration=0s").Ready()
}

// bundled waits until each webhook of a configuration has a caBundle: then the API server can ask it.
func (w *world) bundled(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	suite.Eventually(t, name+" has its caBundles", func() bool {
		o := w.configurations(ctx, t)[name]
		if o == nil {
			return false
		}
		hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		return err == nil && !slices.ContainsFunc(hooks, func(hook any) bool {
			bundle, _, _ := unstructured.NestedString(hook.(map[string]any), "clientConfig", "caBundle")
			return bundle == ""
		})
	})
}

// pod creates a pod once the API server can call the webhook, and returns the stored pod. The API server reads a new
// caBundle a little later.
func (w *world) pod(ctx context.Context, t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	p.APIVersion, p.Kind = "v1", "Pod"
	text, err := yaml.Marshal(p)
	must.Succeed(t, err)
	suite.Eventually(t, "pod "+p.Name+" is made", func() bool {
		err := w.Apply(ctx, text)
		if err != nil && !strings.Contains(err.Error(), "failed calling webhook") {
			t.Fatal(err)
		}
		return err == nil
	})
	made, err := w.Client().CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	must.Succeed(t, err)
	return made
}

// proxyOf returns a pod's proxy, or nil.
func proxyOf(p *corev1.Pod) *corev1.Container {
	all := slices.Concat(p.Spec.Containers, p.Spec.InitContainers)
	for i := range all {
		if all[i].Name == "istio-proxy" {
			return &all[i]
		}
	}
	return nil
}

func plain(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "example/app"}}},
	}
}

// TestInjected: the three charts are installed with values of an Istio user, and the server runs. Pods of labelled
// namespaces come out with a proxy, and valid, and a tag moves a namespace to another revision.
func TestInjected(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	w := newWorld(ctx, t)
	values := filepath.Join(t.TempDir(), "mesh.yaml")
	must.Succeed(t, os.WriteFile(values, []byte(mesh), 0o600))
	h := w.helms[len(w.helms)-1]
	helm := func(args ...string) {
		t.Helper()
		if out, err := h.Run(ctx, args...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	https, canary := port(ctx, t), port(ctx, t)
	// The API server cannot reach Services, so it calls the webhooks at their URLs.
	install := func(release, action, https string, more ...string) {
		t.Helper()
		set := append([]string{"istiodRemote.injectionURL=https://" + https + "/inject"}, more...)
		args := []string{action, release, w.istiod, "-n", namespace, "-f", values, "--set", strings.Join(set, ",")}
		if action == "upgrade" {
			args = append(args, "--take-ownership")
		}
		helm(args...)
	}
	helm("install", "base", w.base, "-n", namespace, "--create-namespace", "--set", "base.validationURL=https://"+https+"/validate")
	install("istiod", "install", https, "revisionTags={stable}")
	w.serve(ctx, t, "istiod", https)
	for name, label := range map[string]string{"shop": "istio-injection: enabled", "team": "istio.io/rev: stable", "other": "a: b",
		"edge": "a: b"} {
		must.Succeed(t, w.Apply(ctx, fmt.Appendf(nil, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s}}\n", name, label)))
	}
	w.bundled(ctx, t, "istio-sidecar-injector")
	w.bundled(ctx, t, "istio-revision-tag-stable")
	w.bundled(ctx, t, "istiod-default-validator")

	t.Run("who gets a proxy", func(t *testing.T) {
		for _, x := range []struct {
			namespace, name string
			labels          map[string]string
			want            bool
		}{
			{"shop", "default", nil, true},
			{"shop", "out", map[string]string{"sidecar.istio.io/inject": "false"}, false},
			{"shop", "never", map[string]string{"never": "true"}, false},
			{"team", "tagged", nil, true},
			{"other", "nothing", nil, false},
			{"other", "in", map[string]string{"sidecar.istio.io/inject": "true"}, true},
			{"other", "by-tag", map[string]string{"istio.io/rev": "stable"}, true},
			{"other", "another", map[string]string{"istio.io/rev": "another"}, false},
		} {
			p := plain(x.namespace, x.name)
			for k, v := range x.labels {
				p.Labels[k] = v
			}
			made := w.pod(ctx, t, p)
			proxy := proxyOf(made)
			if (proxy != nil) != x.want {
				t.Errorf("%s/%s: a proxy: %v", x.namespace, x.name, proxy != nil)
			}
			if proxy == nil {
				continue
			}
			if proxy.Image != "registry.example.org/istio/proxyv2:1.31.1" || proxy.Resources.Requests.Cpu().String() != "10m" {
				t.Errorf("%s/%s: the values of the user are not there: %+v", x.namespace, x.name, proxy)
			}
			if made.Annotations["istio.io/rev"] != "default" {
				t.Errorf("%s/%s: %+v", x.namespace, x.name, made.ObjectMeta)
			}
		}
	})
	// The API server accepts the pods of each template.
	t.Run("templates", func(t *testing.T) {
		root, err := binaries.ModuleRoot()
		must.Succeed(t, err)
		files, err := filepath.Glob(filepath.Join(root, "deploy/charts/testdata/injection/*.txtar"))
		if err != nil || len(files) == 0 {
			t.Fatal("no pods", err)
		}
		for _, file := range files {
			a, err := txtar.ParseFile(file)
			must.Succeed(t, err)
			p := &corev1.Pod{}
			must.Succeed(t, yaml.UnmarshalStrict(a.Files[1].Data, p))
			p.Namespace, p.Name = "shop", strings.TrimSuffix(filepath.Base(file), ".txtar")
			if !bytes.Contains(a.Files[0].Data, []byte("templates:")) { // the control plane of this test has no other templates
				if made := w.pod(ctx, t, p); made.Annotations["sidecar.istio.io/status"] == "" {
					t.Errorf("%s is not injected", p.Name)
				}
			}
			// What injection of other values made is as valid.
			must.Succeed(t, yaml.UnmarshalStrict(a.Files[2].Data, p))
			p.Namespace, p.Name = "other", strings.TrimSuffix(filepath.Base(file), ".txtar")
			w.pod(ctx, t, p)
		}
	})
	t.Run("gateway", func(t *testing.T) {
		helm("install", "istio-ingressgateway", w.gateway, "-n", "edge", "--set", "service.type=ClusterIP")
		d, err := w.Client().AppsV1().Deployments("edge").Get(ctx, "istio-ingressgateway", metav1.GetOptions{})
		must.Succeed(t, err)
		made := w.pod(ctx, t, podOf(d))
		proxy := proxyOf(made)
		if len(made.Spec.Containers) != 1 || len(made.Spec.InitContainers) != 0 || proxy == nil ||
			proxy.Image != "registry.example.org/istio/proxyv2:1.31.1" ||
			!slices.Contains(proxy.Args, "router") || made.Labels["istio"] != "ingressgateway" ||
			made.Spec.ServiceAccountName != "istio-ingressgateway" {
			text, _ := json.Marshal(made)
			t.Errorf("%s", text)
		}
	})
	t.Run("a bad object is refused", func(t *testing.T) {
		bad := "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: bad, namespace: shop}\n" +
			"spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [\"a b\"]}]}\n"
		suite.Eventually(t, "the webhook refuses it", func() bool {
			err := w.Apply(ctx, []byte(bad))
			if err == nil {
				_ = w.Delete(ctx, []byte(bad))
			}
			return err != nil && strings.Contains(err.Error(), `"validation.istio.io" denied`)
		})
	})
	t.Run("another revision", func(t *testing.T) {
		install("canary", "install", canary, "revision=canary")
		w.serve(ctx, t, "istiod-canary", canary)
		w.bundled(ctx, t, "istio-sidecar-injector-canary")
		install("canary", "upgrade", canary, "revision=canary,revisionTags={stable}")
		install("istiod", "upgrade", https, "autoscaleMin=2")
		w.bundled(ctx, t, "istio-revision-tag-stable")
		for _, x := range []struct{ namespace, revision, ca string }{
			{"shop", "default", "istiod.istio-system.svc:15012"},
			{"team", "canary", "istiod-canary.istio-system.svc:15012"},
		} {
			n := 0
			suite.Eventually(t, x.namespace+" is of the revision "+x.revision, func() bool {
				n++
				made := w.pod(ctx, t, plain(x.namespace, fmt.Sprint("moved-", n)))
				proxy := proxyOf(made)
				return proxy != nil && made.Annotations["istio.io/rev"] == x.revision &&
					slices.Contains(proxy.Env, corev1.EnvVar{Name: "CA_ADDR", Value: x.ca})
			})
		}
	})
}

// podOf is the pod that a Deployment would have made.
func podOf(d *appsv1.Deployment) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.Name = d.Namespace, d.Name+"-0"
	return p
}
