package mtls

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/injector"
)

// appsYAML has a service, its server, a client and one that wants no proxy, as users write them.
var appsYAML = suite.NamespacesYAML("istio-system", "a") + suite.ServiceYAML("echo", "a", "10.96.0.10",
	"{name: http, port: 80, targetPort: 8080}", "{name: tcp, port: 90, targetPort: 9090}") +
	`apiVersion: v1
kind: Pod
metadata: {name: echo, namespace: a, labels: {app: echo}}
spec:
  serviceAccountName: echo
  containers: [{name: app, image: echo, args: ["-http=8080", "-tcp=9090"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: a, labels: {app: client}, annotations: {sidecar.istio.io/nativeSidecar: "true"}}
spec:
  serviceAccountName: client
  containers: [{name: app, image: echo}]
---
apiVersion: v1
kind: Pod
metadata: {name: plain, namespace: a, labels: {app: plain, sidecar.istio.io/inject: "false"}}
spec:
  serviceAccountName: plain
  containers: [{name: app, image: echo}]
---
`

// TestInjectedPods: pods that the chart's templates were injected into are run as a kubelet would run them, each with
// its Envoy and behind the rules that its init container asks for. They call one another by mutual TLS.
func TestInjectedPods(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	manifests, err := os.ReadFile(os.Getenv(istiodVar))
	must.Succeed(t, err)
	i, err := charts.Injector(string(manifests))
	must.Succeed(t, err)
	var objects []string
	for doc := range strings.SplitSeq(appsYAML, "---\n") {
		p := &corev1.Pod{}
		if err := yaml.Unmarshal([]byte(doc), p); err != nil || p.Kind != "Pod" {
			objects = append(objects, doc) // another kind
			continue
		}
		objects = append(objects, inject(ctx, t, i, doc, fmt.Sprintf("10.10.0.%d", 20+len(objects))))
	}
	m := start(ctx, t, strings.Join(objects, "---\n"))
	suite.Write(t, filepath.Join(m.Dir, "mode.yaml"), policies(mode("STRICT"), "", ""))
	client, plain, server := m.World.Pod("client"), m.World.Pod("plain"), m.World.Pod("echo")
	if client.Proxy == nil || server.Proxy == nil || plain.Proxy != nil {
		t.Fatal("the wrong pods have a proxy")
	}
	for _, p := range ports[:2] {
		suite.Eventually(t, p.name+" is for the mesh alone", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			address := net.JoinHostPort(server.Node.Addr.String(), strconv.Itoa(p.pod))
			return call(ctx, plain.Location, address, p, nil) != nil &&
				call(ctx, client.Location, "10.96.0.10:"+strconv.Itoa(p.service), p, nil) == nil
		})
		stat := fmt.Sprintf("cluster.outbound|%d||echo.a.svc.cluster.local;.ssl.handshake", p.service)
		if stats(t, m.World, "client", stat) == 0 {
			t.Errorf("%s was called without mutual TLS", p.name)
		}
	}
	if err := m.World.Healthy(ctx); err != nil {
		t.Error(err)
	}
}

// inject returns a pod with its proxy, at an address. Its init container asks for the rules that package pods writes.
func inject(ctx context.Context, t *testing.T, i *injector.Injector, doc, address string) string {
	t.Helper()
	before, err := yaml.YAMLToJSON([]byte(doc))
	must.Succeed(t, err)
	r, err := i.Inject(ctx, injector.Request{Pod: before, Namespace: "a"})
	must.Succeed(t, err)
	p := &corev1.Pod{}
	text := before
	if r.Skipped == "" {
		if text, err = yaml.Marshal(r.Pod); err != nil {
			t.Fatal(err)
		}
	}
	must.Succeed(t, yaml.UnmarshalStrict(text, p))
	if r.Skipped == "" {
		if len(p.Spec.InitContainers) == 0 || p.Spec.InitContainers[0].Name != "istio-init" {
			t.Fatalf("no init container: %s", text)
		}
		want := []string{
			"istio-iptables", "-p", strconv.Itoa(pods.OutboundPort), "-z", strconv.Itoa(pods.InboundPort), "-u", "1337", "-m", "REDIRECT",
			"-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020", "--log_output_level=default:info",
		}
		if args := p.Spec.InitContainers[0].Args; !slices.Equal(args, want) {
			t.Errorf("the init container asks for other rules: %q", args)
		}
	}
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	out, err := yaml.Marshal(p)
	must.Succeed(t, err)
	return string(out)
}
