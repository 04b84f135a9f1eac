package deployment_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/injector"
	"github.com/istiod-lite/istiod-lite/injector/deployment"
	"github.com/istiod-lite/istiod-lite/injector/deployment/deploymenttest"
)

// values are those of Istio's chart without any of a user's, as far as the template reads them.
const values = `{"gateways": {}, "revision": "", "global": {"hub": "registry.istio.io/testing", "tag": "latest", "imagePullSecrets": [],
"istioNamespace": "istio-system", "logging": {"level": "default:info"},
"pilotCertProvider": "istiod", "sds": {"token": {"aud": "istio-ca"}},
"proxy": {"clusterDomain": "cluster.local", "componentLogLevel": "misc:error", "image": "proxyv2", "logLevel": "warning",
"resources": {"limits": {"cpu": "2000m", "memory": "1024Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}}}}}`

// chartInjector returns an Injector with the template of the chart.
func chartInjector(t *testing.T) *injector.Injector {
	t.Helper()
	text, err := os.ReadFile("../../charts/istiod/files/injection/kube-gateway.yaml")
	must.Succeed(t, err)
	config, err := json.Marshal(
		map[string]any{"policy": "enabled", "templates": map[string]any{"sidecar": "spec: {}", injector.GatewayTemplate: string(text)}})
	must.Succeed(t, err)
	c, findings := injector.Parse("test", injector.Texts{Config: string(config), Values: values}, injector.Functions{})
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	i := injector.New(
		injector.Options{World: injector.MeshOnly{Config: mesh.Default()}, Logger: slog.New(slog.DiscardHandler), Time: time.Minute})
	i.Set(c)
	return i
}

// TestIstiod compares what the chart's template makes of Gateways with what istiod applied for them by Istio's.
func TestIstiod(t *testing.T) {
	deploymenttest.Compare(t, "testdata/gateways.txtar", chartInjector(t))
}

// gateway returns a Gateway as a source brings it.
func gateway(t *testing.T, labels map[string]string, spec string) *kinds.Object {
	t.Helper()
	g := &gatewayv1.Gateway{}
	must.Succeed(t, yaml.Unmarshal([]byte("spec: "+spec), g))
	return &kinds.Object{Key: kinds.Key{Kind: kinds.KubeGateway, Namespace: "edge", Name: "front"}, UID: "1", Labels: labels, Spec: g}
}

// needs returns what the objects of a Gateway depend on, with the template of the chart.
func needs(t *testing.T, g *kinds.Object, list ...deployment.Parameters) deployment.Needs {
	t.Helper()
	return deployment.Needs{Gateway: g, Parameters: list, World: world{}, Cluster: "one", Version: 137, Templates: chartInjector(t)}
}

// TestParameters: an error names the ConfigMap and the key, and says what to write.
func TestParameters(t *testing.T) {
	for _, c := range []struct{ key, text, want string }{
		{"deploymnt", "spec: {}", "data.deploymnt: there is no such object: " +
			"write one of serviceAccount, deployment, service, horizontalPodAutoscaler, podDisruptionBudget; did you mean deployment?"},
		{"deployment", "spec: {replicas: ", "data.deployment: "},
		{"deployment", "3", "data.deployment: no object: write its fields, such as spec"},
		{"deployment", "metadata: {name: other}", "data.deployment: metadata.name is front-istio, and may not be other: leave it out"},
		{"service", "metadata: {namespace: other}", "data.service: metadata.namespace is edge, and may not be other: leave it out"},
		{"service", "kind: Deployment", "data.service: kind is Service, and may not be Deployment: leave it out"},
		{"service", "metadata: {labels: {a: b}}", ""},
	} {
		_, err := deployment.Make(t.Context(), needs(t, gateway(t, nil, "{gatewayClassName: istio}"),
			deployment.Parameters{Name: "ConfigMap edge/p", Data: map[string]string{c.key: c.text}}))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s %q: %v", c.key, c.text, err)
		case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "ConfigMap edge/p: "+c.want)):
			t.Errorf("%s %q: %v, want %s", c.key, c.text, err, c.want)
		}
	}
}

// TestListenerSets: those that name the Gateway, and whose namespace it allows, add their ports, the oldest first.
func TestListenerSets(t *testing.T) {
	set := func(namespace, parent string, age int64, port int) *kinds.Object {
		s := &gatewayv1.ListenerSet{}
		must.Succeed(t, yaml.Unmarshal(fmt.Appendf(
			nil, "spec: {parentRef: {name: %s, namespace: edge}, listeners: [{name: http, port: %d, protocol: HTTP}]}", parent, port), s))
		return &kinds.Object{Key: kinds.Key{Kind: kinds.ListenerSet, Namespace: namespace, Name: "set"}, Created: time.Unix(age, 0), Spec: s}
	}
	sets := []*kinds.Object{set("edge", "front", 3, 81), set("shop", "front", 2, 82), set("shop", "other", 1, 83), set("bank", "front", 1, 84)}
	for allowed, want := range map[string]string{
		"": "15021 80", "{namespaces: {from: None}}": "15021 80",
		"{namespaces: {from: Same}}": "15021 80 81", "{namespaces: {from: All}}": "15021 80 84 82 81",
		"{namespaces: {from: Selector, selector: {matchLabels: {name: shop}}}}": "15021 80 82",
	} {
		spec := "{gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]"
		if allowed != "" {
			spec += ", allowedListeners: " + allowed
		}
		n := needs(t, gateway(t, nil, spec+"}"))
		all := world{}
		for _, o := range sets {
			key := kinds.Key{Kind: kinds.Namespace, Name: o.Namespace}
			all[key] = &kinds.Object{Key: key, Labels: map[string]string{"name": o.Namespace}}
		}
		n.ListenerSets, n.World = sets, all
		made, err := deployment.Make(t.Context(), n)
		must.Succeed(t, err)
		var got []string
		ports, _, _ := unstructured.NestedSlice(made[2].Object, "spec", "ports")
		for _, p := range ports {
			got = append(got, fmt.Sprint(p.(map[string]any)["port"]))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: ports %v, want %s", allowed, got, want)
		}
	}
}

// world has objects.
type world map[kinds.Key]*kinds.Object

func (w world) Object(k kinds.Key) *kinds.Object { return w[k] }

func (w world) ObjectsOf(k *kinds.Kind) (list []*kinds.Object) {
	for key, o := range w {
		if key.Kind == k {
			list = append(list, o)
		}
	}
	return list
}

// TestWhichGateways: a Gateway of another class, revision or cluster gets nothing, nor does one that is bound to a host
// or has several addresses. Tags of the revision count.
func TestWhichGateways(t *testing.T) {
	const plain = "{gatewayClassName: istio}"
	class := func(name, controller string) *kinds.Object {
		return &kinds.Object{Key: kinds.Key{Kind: kinds.GatewayClass, Name: name},
			Spec: &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(controller)}}}
	}
	objects := map[kinds.Key]*kinds.Object{}
	for _, o := range []*kinds.Object{
		class("mine", deployment.ControllerName), class("other", "example.com/other"), class("istiod-lite", "example.com/other"),
		{Key: kinds.Key{Kind: kinds.Namespace, Name: "edge"}},
	} {
		objects[o.Key] = o
	}
	for _, c := range []struct {
		name, spec, revision string
		labels, namespace    map[string]string
		controller           string // of this control plane
		want                 bool
	}{
		{name: "built-in class", spec: plain, want: true},
		{name: "class by its controller", spec: "{gatewayClassName: mine}", want: true},
		{name: "class of another controller", spec: "{gatewayClassName: other}"},
		{name: "built-in class that is another's", spec: "{gatewayClassName: istiod-lite}"},
		{name: "unmanaged class", spec: "{gatewayClassName: istio-remote}"},
		{name: "unknown class", spec: "{gatewayClassName: unknown}"},
		{name: "class of a controller of another name", spec: "{gatewayClassName: other}", controller: "example.com/other", want: true},
		{name: "built-in class of a controller of another name", spec: plain, controller: "example.com/other", want: true},
		{name: "class of the controller of the default name", spec: "{gatewayClassName: mine}", controller: "example.com/other"},
		{name: "address", spec: "{gatewayClassName: istio, addresses: [{value: 192.0.2.1}]}", want: true},
		{name: "two addresses", spec: "{gatewayClassName: istio, addresses: [{value: 192.0.2.1}, {value: 192.0.2.2}]}"},
		{name: "host", spec: "{gatewayClassName: istio, addresses: [{type: Hostname, value: a.b}]}"},
		{name: "another revision", spec: plain, labels: map[string]string{"istio.io/rev": "canary"}},
		{name: "its own revision", spec: plain, revision: "canary", labels: map[string]string{"istio.io/rev": "canary"}, want: true},
		{name: "revision of the namespace", spec: plain, revision: "canary", namespace: map[string]string{"istio.io/rev": "canary"}, want: true},
		{name: "no revision", spec: plain, revision: "canary"},
		{name: "tag", spec: plain, labels: map[string]string{"istio.io/rev": "stable"}, want: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects[kinds.Key{Kind: kinds.Namespace, Name: "edge"}].Labels = c.namespace
			o := gateway(t, c.labels, c.spec)
			got := deployment.Deploys(deployment.Options{
				Revision: c.revision, World: world(objects), Controller: c.controller,
				Classes: deployment.Classes("istio", cmp.Or(c.controller, deployment.ControllerName)),
			}, o, "stable")
			if got != c.want {
				t.Errorf("deployed: %t", got)
			}
		})
	}
}
