package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
)

const front = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: front, namespace: edge, labels: {team: a}}
spec:
  gatewayClassName: istio
  listeners: [{name: http, port: 80, protocol: HTTP}%s]
`

// others are Gateways without a deployment, one for a tag of the revision, and one whose Service's name is taken.
const others = `
apiVersion: v1
kind: Service
metadata: {name: taken-istio, namespace: edge, labels: {own: "yes"}}
spec: {ports: [{name: http, port: 8080}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: taken, namespace: edge}
spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: bound, namespace: edge}
spec: {gatewayClassName: istio, addresses: [{type: Hostname, value: front-istio.edge.svc.cluster.local}],
    listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: next, namespace: edge, labels: {istio.io/rev: next}}
spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: tagged, namespace: edge, labels: {istio.io/rev: stable}}
spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: away, namespace: edge}
spec: {gatewayClassName: istio-remote, listeners: [{name: http, port: 80, protocol: HTTP}]}
`

const scaled = `
apiVersion: v1
kind: ConfigMap
metadata: {name: scaled, namespace: edge}
data: {%s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: scaled, namespace: edge}
spec:
  gatewayClassName: istiod-lite
  infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: scaled}}
  listeners: [{name: http, port: 80, protocol: HTTP}]
`

const streams = `
apiVersion: v1
kind: Service
metadata: {name: backend, namespace: edge}
spec: {ports: [{name: tcp, port: 9000}]}
---
apiVersion: gateway.networking.k8s.io/v1alpha2
kind: TCPRoute
metadata: {name: older, namespace: edge}
spec: {parentRefs: [{name: front, sectionName: tcp}], rules: [{backendRefs: [{name: backend, port: 9000}]}]}
`

// edge is a cluster with Gateways.
type edge struct{ *installed.World }

var (
	accounts    = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	services    = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	scalers     = schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	budgets     = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	gateways    = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
	tcpRoutes   = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1alpha2", Resource: "tcproutes"}
	classes     = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"}
)

// get returns an object, or nil if it does not exist.
func (e *edge) get(r schema.GroupVersionResource, name string) *unstructured.Unstructured {
	e.T.Helper()
	u, err := e.Dynamic().Resource(r).Namespace("edge").Get(e.Ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	e.Must(err)
	return u
}

func (e *edge) patch(r schema.GroupVersionResource, name, patch string) {
	e.T.Helper()
	_, err := e.Dynamic().Resource(r).Namespace("edge").Patch(e.Ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "user"})
	e.Must(err)
}

// until waits until an object exists and meets a condition.
func (e *edge) until(what string, r schema.GroupVersionResource, name string,
	says func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	e.T.Helper()
	var u *unstructured.Unstructured
	e.Eventually(what, func() error {
		if u = e.get(r, name); u == nil || !says(u) {
			return fmt.Errorf("%s %s: %v", r.Resource, name, u)
		}
		return nil
	})
	return u
}

// serve has the API server serve one version alone of a kind that is defined.
func (e *edge) serve(r schema.GroupVersionResource) {
	e.T.Helper()
	definitions := e.Dynamic().Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	u, err := definitions.Get(e.Ctx, r.GroupResource().String(), metav1.GetOptions{})
	e.Must(err)
	versions, _, err := unstructured.NestedSlice(u.Object, "spec", "versions")
	e.Must(err)
	for _, v := range versions {
		v := v.(map[string]any)
		v["served"] = v["name"] == r.Version
	}
	e.Must(unstructured.SetNestedSlice(u.Object, versions, "spec", "versions"))
	_, err = definitions.Update(e.Ctx, u, metav1.UpdateOptions{})
	e.Must(err)
}

func exists(*unstructured.Unstructured) bool { return true }

func (e *edge) gone(r schema.GroupVersionResource, name string) {
	e.T.Helper()
	e.Eventually(name+" is gone", func() error {
		if e.get(r, name) != nil {
			return errors.New("it is there")
		}
		return nil
	})
}

// text returns a field of an object as text.
func text(u *unstructured.Unstructured, fields ...string) string {
	v, _, _ := unstructured.NestedFieldNoCopy(u.Object, fields...)
	return fmt.Sprint(v)
}

func image(u *unstructured.Unstructured) string {
	return text(u, "spec", "template", "spec", "containers")
}

// TestGateways: with the rights of the chart, one of two replicas deploys the objects of Gateways, restores them, and
// does not touch other objects. A route has a status if the API server has only an older version of its kind.
func TestGateways(t *testing.T) {
	t.Parallel()
	e := &edge{installed.Start(t, "--set", "revisionTags={stable}")}
	crds, err := cluster.GatewayCRDs(e.Ctx)
	e.Must(err)
	e.Must(e.InstallCRDs(e.Ctx, crds))
	e.serve(tcpRoutes)
	e.Write("apiVersion: v1\nkind: Namespace\nmetadata: {name: edge}\n" + "---" + others)
	foreign := e.get(services, "taken-istio").GetResourceVersion()
	one := e.Launch(program, "istiod", "istiod-0", "--drainDuration=0s").Ready()

	class := func(name string) error {
		u, err := e.Dynamic().Resource(classes).Get(e.Ctx, name, metav1.GetOptions{})
		if err == nil && u.GetResourceVersion() == "" {
			err = errors.New("no version")
		}
		return err
	}
	for name, controller := range map[string]string{"istio": "istio.io/gateway-controller", "istiod-lite": "istio.io/gateway-controller",
		"istio-remote": "istio.io/unmanaged-gateway"} {
		e.Eventually("class "+name, func() error { return class(name) })
		u, err := e.Dynamic().Resource(classes).Get(e.Ctx, name, metav1.GetOptions{})
		e.Must(err)
		if got := text(u, "spec", "controllerName"); got != controller {
			t.Errorf("class %s of %s", name, got)
		}
	}
	e.Must(e.Dynamic().Resource(classes).Delete(e.Ctx, "istio-remote", metav1.DeleteOptions{}))
	e.Eventually("a class that was deleted", func() error { return class("istio-remote") })

	e.Write(fmt.Sprintf(front, ""))
	service := e.until("the Service", services, "front-istio", exists)
	deployment := e.until("the Deployment", deployments, "front-istio", exists)
	account := e.until("the ServiceAccount", accounts, "front-istio", exists)
	owner := e.get(gateways, "front").GetUID()
	for _, u := range []*unstructured.Unstructured{service, deployment, account} {
		if o := u.GetOwnerReferences(); len(o) != 1 || o[0].UID != owner || o[0].Kind != "Gateway" {
			t.Errorf("%s: owners %v", u.GetKind(), o)
		}
		if l := u.GetLabels(); l["gateway.networking.k8s.io/gateway-name"] != "front" ||
			l["gateway.istio.io/managed"] != "istio.io-gateway-controller" || l["team"] != "a" {
			t.Errorf("%s: labels %v", u.GetKind(), l)
		}
	}

	// The Gateway changes, and its deployed objects follow.
	e.Write(fmt.Sprintf(front, ", {name: more, port: 8080, protocol: HTTP}, {name: tcp, port: 9000, protocol: TCP}"))
	e.until("the new port", services, "front-istio",
		func(u *unstructured.Unstructured) bool { return strings.Contains(text(u, "spec", "ports"), "8080") })
	maps := e.Client().CoreV1().ConfigMaps(installed.Namespace)
	templates, err := maps.Get(e.Ctx, "istio-sidecar-injector", metav1.GetOptions{})
	e.Must(err)
	templates.Data["values"] = strings.Replace(templates.Data["values"], `"hub": "`, `"hub": "another.example/`, 1)
	_, err = maps.Update(e.Ctx, templates, metav1.UpdateOptions{})
	e.Must(err)
	e.until("the new image", deployments, "front-istio",
		func(u *unstructured.Unstructured) bool { return strings.Contains(image(u), "another.example/") })

	e.Write(streams)
	e.until("the status of a TCPRoute of an older version", tcpRoutes, "older",
		func(u *unstructured.Unstructured) bool {
			return strings.Contains(text(u, "status", "parents"), "Accepted")
		})

	// Deleted and edited objects are restored. Fields of other owners stay.
	e.patch(deployments, "front-istio",
		`{"metadata":{"labels":{"team":"b","own":"x"}},"spec":{"replicas":3,"template":{"spec":{"serviceAccountName":"other"}}}}`)
	e.until("the labels and the account again", deployments, "front-istio", func(u *unstructured.Unstructured) bool {
		return u.GetLabels()["team"] == "a" && u.GetLabels()["own"] == "x" && text(u, "spec", "replicas") == "3" &&
			text(u, "spec", "template", "spec", "serviceAccountName") == "front-istio"
	})
	e.Must(e.Dynamic().Resource(services).Namespace("edge").Delete(e.Ctx, "front-istio", metav1.DeleteOptions{}))
	e.until("the Service again", services, "front-istio", func(u *unstructured.Unstructured) bool { return u.GetUID() != service.GetUID() })

	// Parameters.
	e.Write(fmt.Sprintf(scaled,
		`horizontalPodAutoscaler: "spec: {maxReplicas: 7}", podDisruptionBudget: "spec: {minAvailable: 1}", service: "spec: {type: ClusterIP}"`))
	e.until("the autoscaler", scalers, "scaled-istiod-lite",
		func(u *unstructured.Unstructured) bool { return text(u, "spec", "maxReplicas") == "7" })
	e.until("the budget", budgets, "scaled-istiod-lite", exists)
	e.until("the type", services, "scaled-istiod-lite",
		func(u *unstructured.Unstructured) bool { return text(u, "spec", "type") == "ClusterIP" })
	e.Write(fmt.Sprintf(scaled, `deployment: "spec: {replicas: 2}"`))
	e.gone(scalers, "scaled-istiod-lite")
	e.gone(budgets, "scaled-istiod-lite")
	e.until("the replicas", deployments, "scaled-istiod-lite",
		func(u *unstructured.Unstructured) bool { return text(u, "spec", "replicas") == "2" })

	e.until("the Gateway of a tag of the revision", deployments, "tagged-istio", exists)

	// Objects of other owners.
	e.until("the Deployment beside another's Service", deployments, "taken-istio", exists)
	if now := e.get(services, "taken-istio"); now.GetResourceVersion() != foreign {
		t.Errorf("another's Service was written: %v", now)
	}
	e.Eventually("a finding", func() error {
		resp, err := http.Get("http://" + one.Monitoring + "/debug/findings")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err == nil && (!strings.Contains(string(page), "GatewayNotDeployed") || !strings.Contains(string(page), "edge/taken-istio")) {
			err = fmt.Errorf("findings %s", page)
		}
		return err
	})
	for _, name := range []string{"bound-istio", "next-istio", "away-istio-remote"} {
		if e.get(deployments, name) != nil || e.get(services, name) != nil {
			t.Errorf("%s was deployed", name)
		}
	}

	// Another replica writes nothing before it leads, and then only what is missing.
	two := e.Launch(program, "istiod", "istiod-1", "--drainDuration=0s").Ready()
	before := e.get(deployments, "front-istio").GetResourceVersion()
	e.Write(strings.NewReplacer("front", "second").Replace(fmt.Sprintf(front, "")))
	e.until("another Gateway's Service", services, "second-istio", exists)
	if strings.Contains(two.Log(), "object of a Gateway written") {
		t.Errorf("the replica that does not lead writes: %s", two.Log())
	}
	e.Must(one.Stop())
	e.Write(fmt.Sprintf(front, ", {name: last, port: 9090, protocol: HTTP}"))
	e.until("the port by the new leader", services, "front-istio",
		func(u *unstructured.Unstructured) bool { return strings.Contains(text(u, "spec", "ports"), "9090") })
	if now := e.get(deployments, "front-istio").GetResourceVersion(); now != before {
		t.Errorf("version %s of a Deployment that was as it should be, was %s", now, before)
	}

	// The objects of a deleted Gateway are garbage-collected, and are not created again.
	e.Must(e.Dynamic().Resource(gateways).Namespace("edge").Delete(e.Ctx, "second", metav1.DeleteOptions{}))
	e.Write(strings.NewReplacer("front", "third").Replace(fmt.Sprintf(front, "")))
	e.until("a third Gateway's Service", services, "third-istio", exists) // the new leader knows of the deletion by then
	for _, r := range []schema.GroupVersionResource{services, deployments, accounts} {
		e.Must(e.Dynamic().Resource(r).Namespace("edge").Delete(e.Ctx, "second-istio", metav1.DeleteOptions{}))
	}
	e.Write(strings.NewReplacer("front", "fourth").Replace(fmt.Sprintf(front, "")))
	e.until("a fourth Gateway's Service", services, "fourth-istio", exists)
	if slices.ContainsFunc([]schema.GroupVersionResource{services, deployments, accounts},
		func(r schema.GroupVersionResource) bool { return e.get(r, "second-istio") != nil }) {
		t.Error("what a Gateway had came back after it was deleted")
	}
}
