package charts

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// world holds the shared state of the test's parts.
type world struct {
	*cluster.Cluster
	helms                 []charts.Helm
	base, istiod, gateway string // paths of the charts
}

const namespace = installed.Namespace

var (
	crds            = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	virtualServices = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
)

// newWorld starts a cluster without any release.
func newWorld(ctx context.Context, t *testing.T) *world {
	t.Helper()
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir()})
	must.Succeed(t, err)
	t.Cleanup(c.Stop)
	w := &world{Cluster: c}
	if w.helms, err = charts.Helms(t.TempDir(), c.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]*string{"base": &w.base, "istiod": &w.istiod, "gateway": &w.gateway} {
		if *path, err = charts.Chart(name); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// TestCharts has one API server for all its parts, one after the other, for a start costs seconds.
func TestCharts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	w := newWorld(ctx, t)
	for _, h := range w.helms {
		if !t.Run(h.Name, func(t *testing.T) { w.lifecycle(ctx, t, h) }) {
			return // its leftovers would disturb the next one
		}
	}
}

// lifecycle installs, uses, upgrades and uninstalls the charts. The first Helm finds no custom resources, and a second
// one finds those of the first.
func (w *world) lifecycle(ctx context.Context, t *testing.T, h charts.Helm) {
	run := func(args ...string) string {
		t.Helper()
		out, err := h.Run(ctx, append(args, "-n", namespace)...)
		must.Succeed(t, err)
		return out
	}
	check := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}

	out := run("install", "istiod", w.istiod, "--dry-run=server", "--create-namespace")
	if strings.Contains(out, "no custom resources of Istio's") != (h.Name == w.helms[0].Name) {
		t.Errorf("notes before the custom resources are there: %s", out)
	}
	run("install", "base", w.base, "--create-namespace")
	w.conform(ctx, t, h)
	if out := run("install", "istiod", w.istiod, "--set", "autoscaleMin=2"); strings.Contains(out, "Please check") {
		t.Errorf("notes find something wrong: %s", out)
	}
	w.rights(ctx, t)
	w.bundles(ctx, t, h)
	w.runByHand(ctx, t, h, "istiod", "")
	w.tags(ctx, t, h)
	run("install", "canary", w.istiod, "--set",
		"revision=canary,env.SHARED_MESH_CONFIG=istio,global.logAsJson=true,resources.limits.memory=1Gi")
	w.runByHand(ctx, t, h, "canary", "canary")

	run("upgrade", "istiod", w.istiod, "--set",
		"autoscaleEnabled=false,replicaCount=3,meshConfig.accessLogFile=/dev/stdout,podDisruptionBudget.minAvailable=1,env.CLUSTER_ID=mine")
	d, err := w.Client().AppsV1().Deployments(namespace).Get(ctx, "istiod", metav1.GetOptions{})
	check(err)
	if d.Spec.Replicas == nil || *d.Spec.Replicas != 3 {
		t.Errorf("replicas after the upgrade: %v", d.Spec.Replicas)
	}
	m, err := w.Client().CoreV1().ConfigMaps(namespace).Get(ctx, "istio", metav1.GetOptions{})
	check(err)
	if !strings.Contains(m.Data["mesh"], "accessLogFile: /dev/stdout") {
		t.Errorf("mesh after the upgrade: %s", m.Data["mesh"])
	}
	if _, err := w.Client().AutoscalingV2().HorizontalPodAutoscalers(namespace).
		Get(ctx, "istiod", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the autoscaler is still there: %v", err)
	}
	budget, err := w.Client().PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, "istiod", metav1.GetOptions{})
	check(err)
	if budget.Spec.MinAvailable == nil || budget.Spec.MaxUnavailable != nil {
		t.Errorf("budget after the upgrade: %+v", budget.Spec)
	}
	run("upgrade", "base", w.base, "--reuse-values")
	run("rollback", "istiod", "1")
	if _, err := w.Client().AutoscalingV2().HorizontalPodAutoscalers(namespace).Get(ctx, "istiod", metav1.GetOptions{}); err != nil {
		t.Errorf("the autoscaler after the rollback: %v", err)
	}

	check(w.Apply(ctx,
		[]byte("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: kept, namespace: default}\n"+
			"spec: {hosts: [a], http: [{route: [{destination: {host: a}}]}]}\n")))
	for _, release := range []string{"canary", "istiod", "base"} {
		run("uninstall", release)
	}
	left, err := w.Dynamic().Resource(crds).List(ctx, metav1.ListOptions{})
	check(err)
	files, err := filepath.Glob(filepath.Join(w.base, "files/crds/*.yaml"))
	check(err)
	if len(left.Items) != len(files) {
		t.Errorf("%d of %d custom resources are left", len(left.Items), len(files))
	}
	if _, err := w.Dynamic().Resource(virtualServices).Namespace("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("an object of the user's: %v", err)
	}
	w.nothingElseIsLeft(ctx, t)
}

// nothingElseIsLeft checks that only custom resources are left of a chart.
func (w *world) nothingElseIsLeft(ctx context.Context, t *testing.T) {
	t.Helper()
	of := metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=istio"}
	var names []string
	add := func(kind string, items []metav1.ObjectMeta) {
		for _, m := range items {
			names = append(names, kind+" "+m.Name)
		}
	}
	roles, err1 := w.Client().RbacV1().ClusterRoles().List(ctx, of)
	bindings, err2 := w.Client().RbacV1().ClusterRoleBindings().List(ctx, of)
	accounts, err3 := w.Client().CoreV1().ServiceAccounts(namespace).List(ctx, of)
	services, err4 := w.Client().CoreV1().Services(namespace).List(ctx, of)
	mutating, err5 := w.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, of)
	validating, err6 := w.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, of)
	must.Succeed(t, errors.Join(err1, err2, err3, err4, err5, err6))
	for _, o := range roles.Items {
		add("ClusterRole", []metav1.ObjectMeta{o.ObjectMeta})
	}
	for _, o := range bindings.Items {
		add("ClusterRoleBinding", []metav1.ObjectMeta{o.ObjectMeta})
	}
	for _, o := range accounts.Items {
		add("ServiceAccount", []metav1.ObjectMeta{o.ObjectMeta})
	}
	for _, o := range services.Items {
		add("Service", []metav1.ObjectMeta{o.ObjectMeta})
	}
	for _, o := range mutating.Items {
		add("MutatingWebhookConfiguration", []metav1.ObjectMeta{o.ObjectMeta})
	}
	for _, o := range validating.Items {
		add("ValidatingWebhookConfiguration", []metav1.ObjectMeta{o.ObjectMeta})
	}
	if len(names) > 0 {
		t.Errorf("left behind: %s", strings.Join(names, ", "))
	}
}

// conform has kubeconform hold every manifest of the charts, for all the values of the goldens, against the schemas of
// this API server.
func (w *world) conform(ctx context.Context, t *testing.T, h charts.Helm) {
	dir := t.TempDir()
	published := func() bool { // custom resources are, a moment after they are made
		_, err := os.Stat(filepath.Join(dir, "networking.istio.io_v1_virtualservice.json"))
		return err == nil
	}
	for !published() {
		must.Succeed(t, writeSchemas(ctx, w.Client(), dir))
	}
	// Alerts are a custom resource of the Prometheus operator's, which is not installed here.
	alerts, err := os.ReadFile("testdata/prometheusrule.json")
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "monitoring.coreos.com_v1_prometheusrule.json"), alerts, 0o600))
	program, err := binaries.Tool("kubeconform", "KUBECONFORM")
	must.Succeed(t, err)
	conform := func(manifests string) (string, error) {
		cmd := exec.CommandContext(ctx, program, "-strict", "-summary", "-schema-location", schemaLocation(dir), "-")
		cmd.Stdin = strings.NewReader(manifests)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	root, err := binaries.ModuleRoot()
	must.Succeed(t, err)
	all := map[string][]string{"base": {"template", "base", w.base, "-n", namespace}}
	for folder, chart := range map[string]string{"": w.istiod, "gateway": w.gateway} {
		goldens, err := filepath.Glob(filepath.Join(root, "deploy/charts/testdata", folder, "*.txtar"))
		if err != nil || len(goldens) == 0 {
			t.Fatal("no goldens", err)
		}
		for _, path := range goldens {
			a, err := txtar.ParseFile(path)
			must.Succeed(t, err)
			values := filepath.Join(t.TempDir(), "values.yaml")
			must.Succeed(t, os.WriteFile(values, a.Files[0].Data, 0o600))
			all[filepath.Join(folder, filepath.Base(path))] = []string{"template", "release", chart, "-n", namespace, "-f", values}
		}
	}
	for name, args := range all {
		manifests, err := h.Run(ctx, args...)
		must.Succeed(t, err)
		if out, err := conform(manifests); err != nil || !strings.Contains(out, "Skipped: 0") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	for planted, want := range map[string]string{
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n" +
			"spec: {replica: 1, selector: {}, template: {}}": "'replica'",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n" +
			"spec: {containers: [{name: a, readinesProbe: {}}]}": "'readinesProbe'",
		"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a}\n" +
			"spec: {hosts: [a], http: [{route: [{desination: {host: a}}]}]}": "'desination'",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\n" +
			"rules: [{apiGroups: [a], resources: [b], verbs: [get], resourceName: [c]}]": "'resourceName'",
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: a}\n" +
			"spec: {groups: [{name: a, rules: [{alert: A, exp: b, for: 1m, labels: {}, annotations: {}}]}]}": "'exp'",
	} {
		if out, err := conform(planted); err == nil || !strings.Contains(out, want) {
			t.Errorf("a planted mistake is not found: want %s, got %v\n%s", want, err, out)
		}
	}
}

// rights checks the rights of the chart's ServiceAccount by using them.
func (w *world) rights(ctx context.Context, t *testing.T) {
	access, err := w.ServiceAccount(ctx, namespace, "istiod")
	must.Succeed(t, err)
	client, err := kubernetes.NewForConfig(access.Config())
	must.Succeed(t, err)
	if _, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=istio"}); err != nil {
		t.Errorf("list the mesh configuration by name: %v", err)
	}
	watch, err := client.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=istio"})
	if err != nil {
		t.Errorf("watch the mesh configuration by name: %v", err)
	} else {
		watch.Stop()
	}
	for _, c := range []struct {
		allowed bool
		a       authorizationv1.ResourceAttributes
	}{
		{true, authorizationv1.ResourceAttributes{Verb: "watch", Group: "networking.istio.io", Resource: "virtualservices"}},
		{true, authorizationv1.ResourceAttributes{Verb: "create", Group: "networking.istio.io", Resource: "workloadentries",
			Namespace: "default"}},
		{true, authorizationv1.ResourceAttributes{Verb: "patch", Group: "networking.istio.io", Resource: "workloadentries", Subresource: "status",
			Namespace: "default"}},
		{true, authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets", Namespace: namespace}},
		// Gateways anywhere name Secrets and ConfigMaps of their namespaces.
		{true, authorizationv1.ResourceAttributes{Verb: "watch", Resource: "secrets", Namespace: "default"}},
		{true, authorizationv1.ResourceAttributes{Verb: "watch", Resource: "configmaps", Namespace: "default"}},
		{true, authorizationv1.ResourceAttributes{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}},
		{true, authorizationv1.ResourceAttributes{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace,
			Name: "istio-workloadentry-cleanup"}},
		{true, authorizationv1.ResourceAttributes{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace,
			Name: "istio-instance-laptop-1"}},
		{true, authorizationv1.ResourceAttributes{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}},
		{true, authorizationv1.ResourceAttributes{Verb: "create", Resource: "secrets", Namespace: namespace, Name: "istio-ca-secret"}},
		{true, authorizationv1.ResourceAttributes{Verb: "update", Resource: "secrets", Namespace: namespace, Name: "istio-ca-secret"}},
		{true, authorizationv1.ResourceAttributes{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace,
			Name: "istio-namespace-controller-election"}},
		{true, authorizationv1.ResourceAttributes{Verb: "create", Resource: "configmaps", Namespace: "default", Name: "istio-ca-root-cert"}},
		{true, authorizationv1.ResourceAttributes{Verb: "patch", Resource: "configmaps", Namespace: "default", Name: "istio-ca-root-cert"}},
		{true, authorizationv1.ResourceAttributes{Verb: "watch", Group: "admissionregistration.k8s.io",
			Resource: "mutatingwebhookconfigurations"}},
		{true, authorizationv1.ResourceAttributes{Verb: "patch", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations",
			Name: "istio-sidecar-injector"}},
		{true, authorizationv1.ResourceAttributes{Verb: "patch", Group: "admissionregistration.k8s.io",
			Resource: "validatingwebhookconfigurations", Name: "istiod-default-validator"}},
		{true, authorizationv1.ResourceAttributes{Verb: "create", Group: "networking.istio.io", Resource: "gateways", Namespace: namespace}},
		{false, authorizationv1.ResourceAttributes{Verb: "patch", Group: "admissionregistration.k8s.io",
			Resource: "mutatingwebhookconfigurations", Name: "another"}},
		{false, authorizationv1.ResourceAttributes{Verb: "create", Group: "networking.istio.io", Resource: "gateways", Namespace: "default"}},
		{false, authorizationv1.ResourceAttributes{Verb: "patch", Resource: "configmaps", Namespace: "default", Name: "another"}},
		{false, authorizationv1.ResourceAttributes{Verb: "update", Resource: "secrets", Namespace: namespace, Name: "cacerts"}},
		{false, authorizationv1.ResourceAttributes{Verb: "delete", Resource: "secrets", Namespace: namespace, Name: "istio-ca-secret"}},
		{false, authorizationv1.ResourceAttributes{Verb: "create", Resource: "secrets", Namespace: "default"}},
		{false, authorizationv1.ResourceAttributes{Verb: "update", Group: "networking.istio.io", Resource: "workloadentries",
			Namespace: "default"}},
		{false, authorizationv1.ResourceAttributes{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace,
			Name: "another"}},
		{false, authorizationv1.ResourceAttributes{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: "default"}},
		{false, authorizationv1.ResourceAttributes{Verb: "update", Resource: "configmaps", Namespace: namespace, Name: "istio"}},
		{false, authorizationv1.ResourceAttributes{Verb: "create", Group: "networking.istio.io", Resource: "virtualservices",
			Namespace: "default"}},
		{false, authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Namespace: namespace}},
		{false, authorizationv1.ResourceAttributes{Verb: "patch", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}},
		{false, authorizationv1.ResourceAttributes{Verb: "update", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}},
	} {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &c.a}},
			metav1.CreateOptions{})
		must.Succeed(t, err)
		if review.Status.Allowed != c.allowed {
			t.Errorf("%s %s.%s %s in %q: allowed is %v", c.a.Verb, c.a.Resource, c.a.Group, c.a.Name, c.a.Namespace, review.Status.Allowed)
		}
	}
	// No other object grants more than the roles.
	bindings, err := w.Client().RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	must.Succeed(t, err)
	var bound []string
	for _, b := range bindings.Items {
		for _, s := range b.Subjects {
			if s == (rbacv1.Subject{Kind: "ServiceAccount", Name: "istiod", Namespace: namespace}) {
				bound = append(bound, b.RoleRef.Name)
			}
		}
	}
	if len(bound) != 1 || bound[0] != "istiod-clusterrole-"+namespace {
		t.Errorf("cluster roles of the account: %v", bound)
	}
}

// tail returns the end of a process's output.
func tail(text string) string {
	return text[max(0, len(text)-4000):]
}
