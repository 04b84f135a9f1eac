package charts

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var webhookKinds = []schema.GroupVersionResource{
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
}

// configurations returns the charts' webhook configurations by name.
func (w *world) configurations(ctx context.Context, t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, kind := range webhookKinds {
		list, err := w.Dynamic().Resource(kind).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=istio"})
		must.Succeed(t, err)
		for i := range list.Items {
			all[list.Items[i].GetName()] = &list.Items[i]
		}
	}
	return all
}

// bundles patches webhook configurations with the chart's account, as the server does, and then upgrades the releases.
// The patched fields stay, and nothing else is written.
func (w *world) bundles(ctx context.Context, t *testing.T, h charts.Helm) {
	t.Helper()
	access, err := w.ServiceAccount(ctx, namespace, "istiod")
	must.Succeed(t, err)
	account, err := dynamic.NewForConfig(access.Config())
	must.Succeed(t, err)
	run := func(args ...string) {
		t.Helper()
		if out, err := h.Run(ctx, append(args, "-n", namespace)...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	bundle := "Q0E=" // no server is called here, so any value will do
	for name, o := range w.configurations(ctx, t) {
		kind := webhookKinds[0]
		if strings.HasPrefix(o.GetKind(), "Validating") {
			kind = webhookKinds[1]
		}
		var patches []map[string]any
		hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		if err != nil || len(hooks) == 0 {
			t.Fatalf("%s has no webhooks: %v", name, err)
		}
		for i, hook := range hooks {
			patches = append(patches, map[string]any{"op": "add", "path": fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), "value": bundle})
			if policy := hook.(map[string]any)["failurePolicy"]; kind == webhookKinds[1] {
				if policy != "Ignore" {
					t.Errorf("%s starts with failurePolicy %v", name, policy)
				}
				patches = append(patches, map[string]any{"op": "replace", "path": fmt.Sprintf("/webhooks/%d/failurePolicy", i), "value": "Fail"})
			}
		}
		text, err := json.Marshal(patches)
		must.Succeed(t, err)
		if _, err := account.Resource(kind).Patch(ctx, name, types.JSONPatchType, text,
			metav1.PatchOptions{FieldManager: "pilot-discovery"}); err != nil {
			t.Fatal(err)
		}
	}
	before := w.configurations(ctx, t)
	if len(before) != 3 {
		t.Errorf("%d webhook configurations", len(before))
	}
	kept := func(when, policy string) {
		t.Helper()
		same := strings.Contains(when, "the same")
		for name, o := range w.configurations(ctx, t) {
			text, err := json.Marshal(o.Object["webhooks"])
			must.Succeed(t, err)
			was, err := json.Marshal(before[name].Object["webhooks"])
			must.Succeed(t, err)
			if same && string(text) != string(was) {
				t.Errorf("%s after %s: %s; it was %s", name, when, text, was)
			}
			if same && o.GetGeneration() != before[name].GetGeneration() {
				t.Errorf("%s after %s is of generation %d; it was of %d", name, when, o.GetGeneration(), before[name].GetGeneration())
			}
			if n := strings.Count(string(text), `"caBundle":"`+bundle+`"`); n == 0 || n != strings.Count(string(text), `"clientConfig"`) {
				t.Errorf("%s after %s has %d caBundles: %s", name, when, n, text)
			}
			if name == "istio-validator-"+namespace && !strings.Contains(string(text), `"failurePolicy":"`+policy+`"`) {
				t.Errorf("%s after %s: the failurePolicy is not %s: %s", name, when, policy, text)
			}
		}
	}
	run("upgrade", "istiod", w.istiod, "--set", "autoscaleMin=2")
	run("upgrade", "base", w.base)
	kept("upgrades to the same", "Fail")
	run("upgrade", "istiod", w.istiod, "--set", "autoscaleMin=2,sidecarInjectorWebhook.reinvocationPolicy=IfNeeded")
	kept("an upgrade to something else", "Fail")
	// The first release sets Ignore. Helm 4 takes the field from the server only with --force-conflicts, and Helm 3
	// always. The server then has to set Fail again.
	force := []string{"rollback", "istiod", "1"}
	if h.Name != "helm3" {
		if out, err := h.Run(ctx, append(force, "-n", namespace)...); err == nil || !strings.Contains(err.Error(), "failurePolicy") {
			t.Errorf("a rollback took the failurePolicy from the server unasked: %v: %s", err, out)
		}
		force = append(force, "--force-conflicts")
	}
	run(force...)
	kept("a rollback to the first release", "Ignore")
	// From here on no server answers, and objects are stored.
	text := `[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}, {"op": "replace", "path": "/webhooks/0/failurePolicy", ` +
		`"value": "Ignore"}]`
	if _, err := account.Resource(webhookKinds[1]).Patch(ctx, "istiod-default-validator", types.JSONPatchType, []byte(text),
		metav1.PatchOptions{FieldManager: "pilot-discovery"}); err != nil {
		t.Fatal(err)
	}
}

// tags moves a tag from one release to another: the tag's configuration is there at every moment.
func (w *world) tags(ctx context.Context, t *testing.T, h charts.Helm) {
	t.Helper()
	run := func(args ...string) {
		t.Helper()
		if out, err := h.Run(ctx, append(args, "-n", namespace)...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	const tag = "istio-revision-tag-stable"
	serves := func(service string, uid types.UID) types.UID {
		t.Helper()
		o := w.configurations(ctx, t)[tag]
		if o == nil {
			t.Fatalf("the tag is gone; it was to be %s's", service)
		}
		hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		must.Succeed(t, err)
		for _, hook := range hooks {
			if name, _, _ := unstructured.NestedString(hook.(map[string]any), "clientConfig", "service", "name"); name != service {
				t.Errorf("a webhook of the tag asks %s, not %s", name, service)
			}
		}
		if uid != "" && uid != o.GetUID() {
			t.Error("the tag was deleted and made again")
		}
		return o.GetUID()
	}
	run("install", "blue", w.istiod, "--set", "revision=blue,revisionTags={stable}")
	run("install", "green", w.istiod, "--set", "revision=green")
	uid := serves("istiod-blue", "")
	if _, err := h.Run(ctx, "upgrade", "green", w.istiod, "--set", "revision=green,revisionTags={stable}", "-n", namespace); err == nil {
		t.Error("a release takes the tag of another unasked")
	}
	run("upgrade", "green", w.istiod, "--take-ownership", "--set", "revision=green,revisionTags={stable}")
	serves("istiod-green", uid)
	run("upgrade", "blue", w.istiod, "--set", "revision=blue")
	serves("istiod-green", uid)
	run("upgrade", "green", w.istiod, "--set", "revision=green,revisionTags={stable}")
	serves("istiod-green", uid)
	run("uninstall", "blue")
	serves("istiod-green", uid)
	run("uninstall", "green")
	if w.configurations(ctx, t)[tag] != nil {
		t.Error("the tag outlives its release")
	}
}
