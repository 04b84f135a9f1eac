package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
)

const rootsMap = "istio-ca-root-cert"

// roots returns the ConfigMap with the roots of a namespace.
func (w *world) roots(namespace string) (*corev1.ConfigMap, error) {
	return w.Client().CoreV1().ConfigMaps(namespace).Get(w.Ctx, rootsMap, metav1.GetOptions{})
}

// handed waits until a namespace has the roots, and returns their ConfigMap.
func (w *world) handed(what, namespace, roots string) *corev1.ConfigMap {
	w.T.Helper()
	var m *corev1.ConfigMap
	w.Eventually(what+": "+namespace+" has the roots", func() (err error) {
		if m, err = w.roots(namespace); err == nil && (m.Data["root-cert.pem"] != roots || m.Labels["istio.io/config"] != "true") {
			err = fmt.Errorf("%v, %v", m.Labels, m.Data)
		}
		return err
	})
	return m
}

// TestRoots: the server writes the roots to every selected namespace, restores edited and deleted ConfigMaps, and does
// not rewrite equal ones.
func TestRoots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\n" +
		"metadata: {name: hidden, labels: {mesh: none}}\n")
	w.Write("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio-ca-root-cert, namespace: a, labels: {mine: kept}}\ndata: {mine: kept}\n")
	mesh := func(data string) {
		t.Helper()
		_, err := w.Client().CoreV1().ConfigMaps(root).Patch(w.Ctx, "istio", types.MergePatchType, []byte(`{"data":{"mesh":`+data+`}}`),
			metav1.PatchOptions{})
		w.Must(err)
	}
	mesh(`"discoverySelectors: [{matchExpressions: [{key: mesh, operator: DoesNotExist}]}]"`)
	one := w.launch("istiod-0").Ready()
	s, err := w.Client().CoreV1().Secrets(root).Get(w.Ctx, "istio-ca-secret", metav1.GetOptions{})
	w.Must(err)
	roots := string(s.Data["root-cert.pem"])
	if strings.Count(roots, "BEGIN CERTIFICATE") != 1 {
		t.Fatalf("%q", roots)
	}
	m := w.handed("at first", "a", roots)
	if m.Data["mine"] != "kept" || m.Labels["mine"] != "kept" {
		t.Errorf("what was in it is lost: %v, %v", m.Labels, m.Data)
	}
	w.handed("at first", root, roots)
	w.handed("at first", "default", roots)

	w.Write("apiVersion: v1\nkind: Namespace\nmetadata: {name: late}\n")
	w.handed("a new namespace", "late", roots)
	w.Must(w.Client().CoreV1().ConfigMaps("a").Delete(w.Ctx, rootsMap, metav1.DeleteOptions{}))
	w.handed("deleted", "a", roots)
	for what, patch := range map[string]string{"edited": `{"data":{"root-cert.pem":"x"}}`, "emptied": `{"data":null}`,
		"label gone": `{"metadata":{"labels":null}}`} {
		_, err := w.Client().CoreV1().ConfigMaps("a").Patch(w.Ctx, rootsMap, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		w.Must(err)
		w.handed(what, "a", roots)
	}
	if m, err := w.roots("hidden"); err == nil {
		t.Errorf("a namespace that is not selected has %v", m.Data)
	}

	// Another server takes over, and writes nothing.
	versions := map[string]string{}
	for _, namespace := range []string{"a", "late", "default", root} {
		m, err := w.roots(namespace)
		w.Must(err)
		versions[namespace] = m.ResourceVersion
	}
	w.Must(one.Stop())
	w.launch("istiod-1").Ready()
	mesh(`""`)
	w.handed("all namespaces are selected", "hidden", roots)
	for namespace, version := range versions {
		if m, err := w.roots(namespace); err != nil || m.ResourceVersion != version {
			t.Errorf("%s was written again, %v", namespace, err)
		}
	}
}

// TestOneNamespace: a server that is limited to a namespace has the rights to work there and in its own namespace, and
// in no other. It deploys the Gateways of these namespaces, and restores their objects.
func TestOneNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--set", "env.ISTIO_WATCH_NAMESPACE=default")
	crds, err := cluster.GatewayCRDs(w.Ctx)
	w.Must(err)
	w.Must(w.InstallCRDs(w.Ctx, crds))
	w.Write("apiVersion: v1\nkind: Namespace\nmetadata: {name: hidden}\n")
	for _, namespace := range []string{"default", "hidden", root} {
		w.Write("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: scaled, namespace: " + namespace + "}\n" +
			"data: {deployment: 'spec: {replicas: 3}'}\n---\n" +
			"apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: front, namespace: " + namespace + "}\n" +
			"spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}], " +
			"infrastructure: {parametersRef: {group: \"\", kind: ConfigMap, name: scaled}}}\n")
	}
	one := w.launch("istiod-0").Ready()
	gateway := func(what, namespace string) {
		w.Eventually(what+": the Gateway in "+namespace+" is deployed", func() error {
			d, err := w.Client().AppsV1().Deployments(namespace).Get(w.Ctx, "front-istio", metav1.GetOptions{})
			if err == nil && (d.Spec.Replicas == nil || *d.Spec.Replicas != 3) {
				err = fmt.Errorf("without its parameters: %v", d.Spec.Replicas)
			}
			_, other := w.Client().CoreV1().Services(namespace).Get(w.Ctx, "front-istio", metav1.GetOptions{})
			return errors.Join(err, other)
		})
	}
	for _, namespace := range []string{"default", root} {
		gateway("at first", namespace)
		w.Must(w.Client().CoreV1().Services(namespace).Delete(w.Ctx, "front-istio", metav1.DeleteOptions{}))
		w.Must(w.Client().AppsV1().Deployments(namespace).Delete(w.Ctx, "front-istio", metav1.DeleteOptions{}))
		gateway("after it was deleted", namespace)
	}
	s, err := w.Client().CoreV1().Secrets(root).Get(w.Ctx, "istio-ca-secret", metav1.GetOptions{})
	w.Must(err)
	w.handed("at first", "default", string(s.Data["root-cert.pem"]))
	w.handed("at first", root, string(s.Data["root-cert.pem"]))
	for _, namespace := range []string{"default", "hidden"} {
		w.Write("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: out, namespace: " + namespace + "}\n" +
			"spec: {hosts: [" + namespace + ".example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}\n")
	}
	page := func(name string) string {
		resp, err := http.Get("http://" + one.Monitoring + "/debug/" + name)
		w.Must(err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		w.Must(err)
		return string(text)
	}
	w.Eventually("objects of the namespace are in force", func() error {
		if text := page("configz"); !strings.Contains(text, "default.example") {
			return fmt.Errorf("/debug/configz: %s", text)
		}
		return nil
	})
	if strings.Contains(page("configz"), "hidden.example") {
		t.Error("an object of another namespace is in force")
	}
	if m, err := w.roots("hidden"); err == nil {
		t.Errorf("another namespace has %v", m.Data)
	}
	if d, err := w.Client().AppsV1().Deployments("hidden").List(w.Ctx, metav1.ListOptions{}); err != nil || len(d.Items) > 0 {
		t.Errorf("Deployments of another namespace: %v, %v", d, err)
	}
	w.Eventually("no rights are missing", func() error {
		if text := page("findings"); strings.Contains(text, "forbidden") || strings.Contains(text, "NoWatch") {
			return errors.New(text)
		}
		return nil
	})
}
