package check

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// root is a self-signed certificate that expires in 2036. Its private key was not kept.
const root = `-----BEGIN CERTIFICATE-----
MIIBczCCARmgAwIBAgIUA+MqQPQbjnoRkfTFoXAEvEqrgSswCgYIKoZIzj0EAwIw
DzENMAsGA1UECgwEdGVzdDAeFw0yNjExMjUyMjQ2MTBaFw0zNjExMjIyMjQ2MTBa
MA8xDTALBgNVBAoMBHRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAART1a6R
3WGMu50CHQRS9xk1gHr/gEd6iEAXH+YHzBS+2nw9fJKcm75hlPQ3SiK3yTt6LJ8V
DxYQ+WQBnesZK0Ago1MwUTAdBgNVHQ4EFgQUMRYhtpqA3+q1BEM+f5AG8G2TY88w
HwYDVR0jBBgwFoAUMRYhtpqA3+q1BEM+f5AG8G2TY88wDwYDVR0TAQH/BAUwAwEB
/zAKBggqhkjOPQQDAgNIADBFAiBbESDQyTpHze85ss5C3xg3XV5gGzkN5JuDhKd5
ph1cZAIhAMemkrkfPBVtLD/VUUjHJKxjtvnh+W5AZYdXAEkOA1QJ
-----END CERTIFICATE-----
`

// cluster returns a Cluster with the objects of YAML documents. The user may not use the denied resources.
func cluster(t *testing.T, version, text string, denied ...string) *Cluster {
	t.Helper()
	var objects []runtime.Object
	for document := range strings.SplitSeq(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		must.Succeed(t, yaml.Unmarshal([]byte(document), &o.Object))
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
	lists := map[schema.GroupVersionResource]string{}
	for r, kind := range map[schema.GroupVersionResource]string{
		resource("apps", "deployments"): "Deployment", resource("", "configmaps"): "ConfigMap",
		resource("", "namespaces"): "Namespace",
		resource("", "services"):   "Service", resource("", "pods"): "Pod", resource("coordination.k8s.io", "leases"): "Lease",
		resource("admissionregistration.k8s.io", "mutatingwebhookconfigurations"):   "MutatingWebhookConfiguration",
		resource("admissionregistration.k8s.io", "validatingwebhookconfigurations"): "ValidatingWebhookConfiguration",
		resource("apiextensions.k8s.io", "customresourcedefinitions"):               "CustomResourceDefinition",
	} {
		lists[r] = kind + "List"
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)
	client.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
		name, _, _ := unstructured.NestedString(o.Object, "spec", "resourceAttributes", "resource")
		return true, o, unstructured.SetNestedField(o.Object, !slices.Contains(denied, name), "status", "allowed")
	})
	return &Cluster{client: client, raw: always(`{"gitVersion": "` + version + `"}`), Namespace: "istio-system", Now: now()}
}

// always answers every path with one text.
type always string

func (a always) Get(context.Context, string) ([]byte, error) { return []byte(a), nil }

// finds fails the test unless a result has the state and contains the text.
func finds(t *testing.T, r *Report, s State, says string) {
	t.Helper()
	if !slices.ContainsFunc(r.Results, func(x Result) bool { return x.State == s && strings.Contains(plain(x), says) }) {
		t.Errorf("nothing is %s and says %q: %+v", s, says, r.Results)
	}
}

// object returns a YAML document, with its separator.
func object(apiVersion, kind, metadata, fields string) string {
	return "\n---\napiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {" + metadata + "}\n" + fields
}

func crd(metadata, version string) string {
	return object("apiextensions.k8s.io/v1", "CustomResourceDefinition", metadata, "spec: {versions: [{name: "+version+", served: true}]}")
}

// webhook returns a configuration with one webhook that calls a Service. kind is Mutating or Validating. The bundle is
// in base 64; an empty one is left out.
func webhook(kind, name, revision, fields, service, bundle string) string {
	if bundle != "" {
		bundle = "caBundle: " + bundle + ", "
	}
	return object("admissionregistration.k8s.io/v1", kind+"WebhookConfiguration", "name: "+name+", labels: {istio.io/rev: "+revision+"}",
		"webhooks: [{"+fields+", clientConfig: {"+bundle+"service: {name: "+service+", namespace: istio-system}}}]")
}

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: istiod, namespace: istio-system, labels: {app: istiod, istio.io/rev: default}}
spec: {replicas: 2, template: {spec: {containers: [{name: discovery, image: pilot:1, resources: {limits: {memory: 1Gi}}}]}}}
status: {readyReplicas: 1}
`

// A control plane can be installed in an empty cluster. Obstacles in other clusters are found.
func TestInstallable(t *testing.T) {
	var r Report
	if err := r.Installable(t.Context(), cluster(t, "v1.33.2", "")); err != nil || r.Wrong() || r.Count(Warning) > 0 {
		t.Errorf("an empty cluster: %v, %+v", err, r.Results)
	}
	r = Report{}
	c := cluster(t, "v1.28.9", deployment+
		webhook("Mutating", "istio-sidecar-injector-old", "old", "name: rev.namespace.sidecar-injector.istio.io", "istiod-old", "")+
		crd("name: virtualservices.networking.istio.io", "v1alpha3")+
		crd("name: httproutes.gateway.networking.k8s.io, annotations: {gateway.networking.k8s.io/bundle-version: v0.5.0}", "v1alpha2")+
		object("v1", "Service", "name: istiod, namespace: istio-system", "spec: {ports: [{port: 15010}, {port: 15012}, {port: 15014}]}"),
		"clusterroles", "deployments")
	must.Succeed(t, r.Installable(t.Context(), c))
	finds(t, &r, Wrong, "v1.28.9 is too old: the charts need 1.29.0 or later")
	finds(t, &r, Wrong, "you may not get, create, patch clusterroles.rbac.authorization.k8s.io")
	finds(t, &r, Wrong, "you may not get, create, patch deployments.apps")
	finds(t, &r, Warning, "revision default, istio-system/istiod, pilot:1: helm install would replace it")
	finds(t, &r, Wrong, "istio-sidecar-injector-old is left over")
	finds(t, &r, Warning, "1 definition not managed by Helm")
	finds(t, &r, Warning, "missing: ")
	finds(t, &r, Wrong, "httproutes.gateway.networking.k8s.io: it serves none of the versions")
	finds(t, &r, Wrong, "the Service istiod lacks 443")
}

// The project's own release is upgraded, so it is no obstacle. The real istiod in its place is one.
func TestInstallableAgain(t *testing.T) {
	own := strings.Replace(deployment, "istio.io/rev: default}", "istio.io/rev: default, app.kubernetes.io/version: 1.31.1-lite.1}", 1) +
		webhook("Mutating", "istio-sidecar-injector", "default", "name: rev.namespace.sidecar-injector.istio.io", "istiod", "") +
		object("v1", "Service", "name: istiod, namespace: istio-system",
			"spec: {ports: [{port: 15010}, {port: 15012}, {port: 443}, {port: 15014}]}")
	var r Report
	if err := r.Installable(t.Context(), cluster(t, "v1.33.2", own)); err != nil || r.Wrong() || r.Count(Warning) > 0 {
		t.Errorf("the own release: %v, %+v", err, r.Results)
	}
	finds(t, &r, OK, "revision default, istio-system/istiod, pilot:1: already installed")
	for _, x := range r.Results {
		if strings.Contains(plain(x), "other control plane") {
			t.Errorf("it is another control plane: %s", plain(x))
		}
	}
	r = Report{}
	must.Succeed(t, r.Installable(t.Context(), cluster(t, "v1.33.2", strings.Replace(own, "1.31.1-lite.1", "1.31.1", 1))))
	finds(t, &r, Warning, "helm install would replace it")
}

// The checks cover replicas, ConfigMaps, leaders, roots and webhooks of an installation.
func TestInstalled(t *testing.T) {
	var r Report
	must.Succeed(t, r.Installed(t.Context(), cluster(t, "v1.33.2", "")))
	finds(t, &r, Wrong, "the namespace istio-system has no Deployment of a control plane (revision default)")
	finds(t, &r, Wrong, "the ConfigMap istio-ca-root-cert is missing")
	bundle := base64.StdEncoding.EncodeToString([]byte(root))
	r = Report{}
	c := cluster(t, "v1.33.2", deployment+
		object("v1", "ConfigMap", "name: istio, namespace: istio-system", `data: {mesh: "trustDomain: cluster.local"}`)+
		object("v1", "ConfigMap", `name: istio-ca-root-cert, namespace: istio-system, labels: {istio.io/config: "true"}`,
			"data: {root-cert.pem: "+strconv.Quote(root)+"}")+
		object("v1", "ConfigMap", `name: istio-ca-root-cert, namespace: other, labels: {istio.io/config: "true"}`, `data: {root-cert.pem: "-"}`)+
		object("v1", "Namespace", "name: shop", "")+
		object("v1", "Namespace", "name: other", "")+
		object("v1", "Namespace", "name: kube-system", "")+
		object("coordination.k8s.io/v1", "Lease", "name: istio-leader, namespace: istio-system",
			`spec: {holderIdentity: istiod-1, leaseDurationSeconds: 30, renewTime: "2026-01-01T11:59:50.000000Z"}`)+
		object("coordination.k8s.io/v1", "Lease", "name: istio-namespace-controller-election, namespace: istio-system",
			`spec: {holderIdentity: istiod-0, leaseDurationSeconds: 30, renewTime: "2026-01-01T11:00:00.000000Z"}`)+
		object("v1", "Service", "name: istiod, namespace: istio-system", "")+
		webhook("Mutating", "good", "default", "name: x.istio.io", "istiod", bundle)+
		webhook("Mutating", "untrusted", "default", "name: x.istio.io", "istiod", "eA==")+
		webhook("Validating", "lax", "default", "name: x.istio.io, failurePolicy: Ignore", "istiod", bundle)+
		crd("name: gateways.networking.istio.io", "v1alpha1")+
		crd("name: virtualservices.networking.istio.io", "v1")+
		webhook("Validating", "bare", "default", "name: x.istio.io", "istiod", ""))
	must.Succeed(t, r.Installed(t.Context(), c))
	finds(t, &r, Warning, "istiod: 1 of 2 are ready")
	finds(t, &r, OK, "at most 1Gi")
	finds(t, &r, OK, "mesh configuration: ConfigMap istio")
	finds(t, &r, Warning, "there is no ConfigMap istio-system/istio-sidecar-injector")
	finds(t, &r, Wrong, "istio-namespace-controller-election was last renewed by istiod-0 1h0m0s ago")
	finds(t, &r, OK, "1 held, for example by istiod-1")
	finds(t, &r, Wrong, "1 namespace without the ConfigMap istio-ca-root-cert: shop")
	finds(t, &r, Wrong, "1 namespace with roots that differ from istio-system: other")
	finds(t, &r, Wrong, "untrusted: its caBundle contains no root")
	finds(t, &r, Warning, "lax: failurePolicy is Ignore")
	finds(t, &r, Wrong, "bare: it has no caBundle")
	finds(t, &r, Wrong, "custom resources: 1 definition without a version that this server reads: gateways.networking.istio.io")
	finds(t, &r, Wrong, "missing, so objects of these kinds cannot be written: ")
	for _, x := range r.Results { // new replicas write what the leader writes
		if (x.Name == "bare" || x.Name == "untrusted" ||
			x.Name == "namespaces") && x.Fix != "kubectl -n istio-system rollout restart deploy/istiod" {
			t.Errorf("%s is mended by %s", x.Name, x.Fix)
		}
	}
	if slices.ContainsFunc(r.Results, func(x Result) bool { return x.Name == "good" }) {
		t.Errorf("the webhook that is as it should be: %+v", r.Results)
	}
}

// The variables of the Deployment say which ConfigMaps have the roots, and which namespaces. The Lease for creating
// ServiceExports is one of the control plane's.
func TestOtherRoots(t *testing.T) {
	var r Report
	with := "image: pilot:1, env: [{name: PILOT_CA_CERT_CONFIGMAP, value: mesh-a}, {name: ISTIO_WATCH_NAMESPACE, value: shop}]"
	must.Succeed(t, r.Installed(t.Context(), cluster(t, "v1.33.2", strings.Replace(deployment, "image: pilot:1", with, 1)+
		object("v1", "ConfigMap", `name: mesh-a, namespace: istio-system, labels: {istio.io/config: "true"}`,
			"data: {root-cert.pem: "+strconv.Quote(root)+"}")+
		object("v1", "Namespace", "name: shop", "")+object("v1", "Namespace", "name: unwatched", "")+
		object("coordination.k8s.io/v1", "Lease", "name: istio-namespace-controller-election-mesh-a-istio-ca-crl, namespace: istio-system",
			`spec: {holderIdentity: istiod-0, leaseDurationSeconds: 30, renewTime: "2026-01-01T11:59:50.000000Z"}`)+
		object("coordination.k8s.io/v1", "Lease", "name: istio-serviceexport-controller-election, namespace: istio-system",
			`spec: {holderIdentity: istiod-0, leaseDurationSeconds: 30, renewTime: "2026-01-01T11:00:00.000000Z"}`))))
	finds(t, &r, Wrong, "istio-serviceexport-controller-election was last renewed by istiod-0 1h0m0s ago")
	finds(t, &r, Wrong, "1 namespace without the ConfigMap mesh-a: shop")
	finds(t, &r, OK, "1 held, for example by istiod-0")
}

// With ClusterTrustBundles, one of them has the roots, and no ConfigMap.
func TestRootsInABundle(t *testing.T) {
	with := "image: pilot:1, env: [{name: PILOT_CA_CERT_CONFIGMAP, value: mesh-a}, {name: ENABLE_CLUSTER_TRUST_BUNDLE_API, value: 'true'}]"
	installed := strings.Replace(deployment, "image: pilot:1", with, 1) + object("v1", "Namespace", "name: shop", "")
	for bundle, says := range map[string]string{
		"": "the ClusterTrustBundle istio.io:istiod-ca:mesh-a is missing",
		"spec: {signerName: istio.io/istiod-ca, trustBundle: none}":                        "it contains no certificate",
		"spec: {signerName: istio.io/istiod-ca, trustBundle: " + strconv.Quote(root) + "}": "",
	} {
		var r Report
		text := installed
		if bundle != "" {
			text += object("certificates.k8s.io/v1beta1", "ClusterTrustBundle", "name: 'istio.io:istiod-ca:mesh-a'", bundle)
		}
		must.Succeed(t, r.Installed(t.Context(), cluster(t, "v1.33.2", text)))
		if says != "" {
			finds(t, &r, Wrong, says)
		}
		for _, x := range r.Results {
			if strings.Contains(plain(x), "ConfigMap mesh-a") || says == "" && x.Name == "roots" && x.State == Wrong {
				t.Errorf("%q: %s", bundle, plain(x))
			}
		}
	}
}

// The report says why a Pod has no proxy.
func TestPod(t *testing.T) {
	for _, x := range []struct {
		text  string
		state State
		says  string
	}{
		{"", Wrong, "there is no Pod shop/web"},
		{object("v1", "Namespace", "name: shop", "") + object("v1", "Pod", "name: web, namespace: shop", ""), Wrong,
			"neither it nor its namespace asks for one"},
		{"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enabled}}\n---\napiVersion: v1\nkind: Pod\n" +
			"metadata: {name: web, namespace: shop}\n", Wrong, "although a label asks for one"},
		{"apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, annotations: {istio.io/rev: canary}}\n" +
			"status: {containerStatuses: [{name: istio-proxy, ready: true, image: proxy, restartCount: 0, imageID: \"\"}]}\n", OK,
			"by revision canary"},
		{"apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n" +
			"status: {containerStatuses: [{name: istio-proxy, ready: false, image: proxy, restartCount: 3, imageID: \"\"}]}\n", Wrong,
			"the proxy is not ready (restarted 3 times)"},
	} {
		var r Report
		must.Succeed(t, r.Pod(t.Context(), cluster(t, "v1.33.2", x.text), "web", "shop"))
		finds(t, &r, x.state, x.says)
	}
}
