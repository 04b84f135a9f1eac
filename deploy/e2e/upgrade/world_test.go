package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/load"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const (
	requestTimeout = 15 * time.Second
	// rate is in requests a second of each load.
	rate = 20
)

// world is a cluster with a node, on which control planes and applications run.
type world struct {
	*cluster.Cluster
	t         *testing.T
	node      *node.Node
	installed map[string][]*unstructured.Unstructured // objects of manifests, by release
	step      int                                     // see change
	clients   []*client
}

// start starts a cluster with manifests of package install.
func start(t *testing.T, base, istiod string) *world {
	t.Helper()
	work, err := os.MkdirTemp("", "up")
	must.Succeed(t, err)
	suite.LogTails(t, work)
	w := &world{t: t, installed: map[string][]*unstructured.Unstructured{}}
	w.Cluster, w.node = install.Start(t.Context(), t, install.Options{Network: network, Work: work, Base: base, Istiod: istiod, Image: image})
	w.installed["base"], w.installed["istiod"] = w.parse(base), w.parse(istiod)
	return w
}

// image returns the images of the release before and of istiod.
func image(name string) (node.Image, bool) {
	switch {
	case strings.Contains(name, "/istiod-lite:previous"):
		return install.Image("previous-pilot-discovery", "pilot-discovery", "previous-pilot-agent", "pilot-agent"), true
	case strings.Contains(name, "proxyv2:previous"):
		return install.Image("previous-pilot-agent", "pilot-agent", "envoy.sh", "envoy", "envoy", "envoy.real"), true
	case strings.Contains(name, "/pilot:"):
		return install.Image("istiod", "pilot-discovery"), true
	}
	return node.Image{}, false
}

func (w *world) parse(name string) []*unstructured.Unstructured {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv(install.DirVar), name+".yaml"))
	must.Succeed(w.t, err)
	objects, err := cluster.Parse(text)
	must.Succeed(w.t, err)
	return objects
}

// install does what `helm upgrade --install` does: it applies manifests, and deletes objects that the release had
// before and no release has now.
func (w *world) install(release, manifests string) {
	w.t.Helper()
	before := w.installed[release]
	w.installed[release] = w.parse(manifests)
	must.Succeed(w.t, w.ApplyPath(w.t.Context(), filepath.Join(os.Getenv(install.DirVar), manifests+".yaml")))
	w.prune(before)
}

func (w *world) uninstall(release string) {
	w.t.Helper()
	before := w.installed[release]
	delete(w.installed, release)
	w.prune(before)
}

// prune deletes objects that no release has. Helm keeps CustomResourceDefinitions and namespaces.
func (w *world) prune(objects []*unstructured.Unstructured) {
	w.t.Helper()
	id := func(o *unstructured.Unstructured) string {
		return fmt.Sprint(o.GroupVersionKind(), o.GetNamespace(), "/", o.GetName())
	}
	kept := map[string]bool{}
	for _, list := range w.installed {
		for _, o := range list {
			kept[id(o)] = true
		}
	}
	var gone strings.Builder
	for _, o := range objects {
		if kind := o.GetKind(); kept[id(o)] || kind == "CustomResourceDefinition" || kind == "Namespace" {
			continue
		}
		text, err := json.Marshal(o.Object)
		must.Succeed(w.t, err)
		fmt.Fprintf(&gone, "---\n%s\n", text)
	}
	must.Succeed(w.t, w.Delete(w.t.Context(), []byte(gone.String())))
}

func (w *world) apply(yaml string) {
	w.t.Helper()
	must.Succeed(w.t, w.Apply(w.t.Context(), []byte(yaml)))
}

// rolledOut waits until all pods of a Deployment are of its template and ready, and none of another template is there.
func (w *world) rolledOut(namespace, name string) {
	w.t.Helper()
	suite.Eventually(w.t, name+" has been rolled out", func() bool {
		d, err := w.Client().AppsV1().Deployments(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil || d.Status.ObservedGeneration != d.Generation || d.Status.ReadyReplicas != *d.Spec.Replicas {
			return false
		}
		return len(w.pods(namespace, name)) == int(*d.Spec.Replicas)
	})
}

// pods returns the pods of a Deployment, also pods that end.
func (w *world) pods(namespace, deployment string) []corev1.Pod {
	w.t.Helper()
	list, err := w.Client().CoreV1().Pods(namespace).List(w.t.Context(), metav1.ListOptions{})
	must.Succeed(w.t, err)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return !slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Name == deployment })
	})
}

// application has a service in mode STRICT, called by two names: one keeps its connections, and each connection of the
// other one carries one request. The gateway leads to the first.
const application = `
apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels: {%s}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
---
apiVersion: v1
kind: Service
metadata: {name: kept, namespace: shop}
spec:
  selector: {app: server}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: single, namespace: shop}
spec:
  selector: {app: server}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: single, namespace: shop}
spec:
  host: single.shop.svc.cluster.local
  trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: entry, namespace: shop}
spec:
  selector: {app: gateway}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]
`

// routes answer with the number of the last change.
const routes = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: kept, namespace: shop}
spec:
  hosts: [kept.shop.svc.cluster.local, shop.example.com]
  gateways: [mesh, entry]
  http:
  - headers: {response: {set: {x-step: "%[1]d"}}}
    route: [{destination: {host: kept.shop.svc.cluster.local}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: single, namespace: shop}
spec:
  hosts: [single.shop.svc.cluster.local]
  http:
  - headers: {response: {set: {x-step: "%[1]d"}}}
    route: [{destination: {host: single.shop.svc.cluster.local}}]
`

// deployment is the Deployment NAME-SUFFIX of an application.
const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s-%[2]s, namespace: shop}
spec:
  replicas: 1
  selector:
    matchLabels: {app: %[1]s, set: %[2]s}
  template:
    metadata:
      labels: {app: %[1]s, set: %[2]s, sidecar.istio.io/inject: "true"}
      annotations: {%[3]s}
    spec:
      containers:
      - {name: %[4]s, image: %[5]s}
`

// launch runs a server, a client and a gateway, whose pods are injected now, and loads from client and gateway.
func (w *world) launch(set string) {
	w.t.Helper()
	for _, app := range []string{"server", "client"} {
		w.apply(fmt.Sprintf(deployment, app, set, "", "app", "example.com/echo-advanced:1"))
	}
	w.apply(fmt.Sprintf(deployment, "gateway", set, `inject.istio.io/templates: gateway`, "istio-proxy", "auto"))
	for _, app := range []string{"server", "client", "gateway"} {
		w.rolledOut("shop", app+"-"+set)
	}
	client, gateway := w.pods("shop", "client-"+set)[0], w.pods("shop", "gateway-"+set)[0]
	dial, err := w.node.Dialer("shop", client.Name)
	must.Succeed(w.t, err)
	for _, name := range []string{"kept", "single"} {
		s, err := w.Client().CoreV1().Services("shop").Get(w.t.Context(), name, metav1.GetOptions{})
		must.Succeed(w.t, err)
		w.load(set, "client-"+set+" to "+name, net.JoinHostPort(s.Spec.ClusterIP, "80"), name+".shop.svc.cluster.local", dial)
	}
	w.load(set, "gateway-"+set, net.JoinHostPort(gateway.Status.PodIP, "8080"), "shop.example.com", new(net.Dialer).DialContext)
}

// client sends requests at a steady rate.
type client struct {
	set, name, address, host string
	http                     *http.Client
	run                      *load.Run
}

func (w *world) load(set, name, address, host string, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	w.t.Helper()
	c := &client{set: set, name: name, address: address, host: host,
		http: &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 32}}}
	var err error
	defer func() {
		if w.t.Failed() {
			w.t.Logf("%s: the last answer: %v", name, err)
		}
	}()
	suite.Eventually(w.t, "an answer to "+name, func() bool { _, err = c.ask(w.t.Context()); return err == nil })
	c.run = load.Start(context.WithoutCancel(w.t.Context()), load.Options{Rate: rate, Timeout: requestTimeout,
		Send: func(ctx context.Context) (string, error) { _, err := c.ask(ctx); return "server", err }})
	w.t.Cleanup(func() { c.end(w.t) })
	w.clients = append(w.clients, c)
}

// ask sends a request, and returns the number of the last change that the client's proxy has.
func (c *client) ask(ctx context.Context) (step string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address+"/", nil)
	if err != nil {
		return "", err
	}
	req.Host = c.host
	resp, err := c.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "Hostname=server-") {
		return "", fmt.Errorf("%s: %.200s, %s", resp.Status, body, resp.Header.Get("x-envoy-response-flags"))
	}
	return resp.Header.Get("x-step"), nil
}

// end stops the load. A failed request fails the test.
func (c *client) end(t *testing.T) {
	t.Helper()
	if c.run == nil {
		return
	}
	report := c.run.Stop()
	c.run = nil
	c.http.CloseIdleConnections()
	t.Logf("%s: %s", c.name, report)
	if err := report.Err(); err != nil {
		t.Errorf("%s: %v", c.name, err)
	}
	if report.Answered == 0 {
		t.Errorf("%s: no request was answered", c.name)
	}
}

// whole fails the test if a request has failed, and says after what.
func (w *world) whole(after string) {
	w.t.Helper()
	for _, c := range w.clients {
		if c.run == nil {
			continue
		}
		if err := c.run.Report().Err(); err != nil {
			w.t.Fatalf("%s: %s: %v", after, c.name, err)
		}
	}
}

// leave ends the loads of a set, whose control plane is to go. Its server goes on to answer other clients.
func (w *world) leave(set string) {
	w.t.Helper()
	for _, c := range w.clients {
		if c.set == set {
			c.end(w.t)
		}
	}
	w.clients = slices.DeleteFunc(w.clients, func(c *client) bool { return c.set == set })
}

// get asks a port of a pod, as a program in the pod does.
func (w *world) get(namespace, pod string, port int, path string) (string, error) {
	dial, err := w.node.Dialer(namespace, pod)
	if err != nil {
		return "", err
	}
	c := &http.Client{Timeout: requestTimeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	resp, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(text), err
}
