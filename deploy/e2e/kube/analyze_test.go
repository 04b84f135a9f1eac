package kube

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// mistakes is a cluster with several mistakes, such as a route to a missing host, a Secret with a wrong key, and
// endpoints at the address of a Node.
const mistakes = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio-injection: enabled}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {app: web}}
spec: {containers: [{name: web, image: web}]}
---
apiVersion: v1
kind: Pod
metadata: {name: old, namespace: shop, labels: {app: other}}
spec: {containers: [{name: web, image: web}, {name: istio-proxy, image: "mirror.example/proxyv2:1.2"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: new, namespace: shop, labels: {app: other}}
spec: {containers: [{name: web, image: web}], initContainers: [{name: istio-proxy, image: "mirror.example/proxyv2:1.3",
    restartPolicy: Always}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio-sidecar-injector, namespace: istio-system}
data: {values: '{"global": {"hub": "mirror.example", "tag": "1.3"}}'}
---
apiVersion: v1
kind: Pod
metadata: {name: gateway, namespace: edge, labels: {istio: gateway}}
spec: {containers: [{name: istio-proxy, image: proxy}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: edge}
spec:
  selector: {istio: gateway}
  servers:
  - {port: {number: 443, name: https, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: bad}}
  - {port: {number: 8443, name: other, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: absent}}
---
apiVersion: v1
kind: Secret
metadata: {name: bad, namespace: edge}
stringData: {cert.pem: x}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{route: [{destination: {host: wbe}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: edge, namespace: edge}
spec: {hosts: [x.example], http: [{route: [{destination: {host: web.shop.svc.cluster.local}}]}]}
---
apiVersion: v1
kind: Node
metadata: {name: one}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: host, namespace: shop}
spec: {address: 192.0.2.1}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: host, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [192.0.2.1]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: meant, namespace: shop, labels: {kubernetes.io/service-name: web},
    annotations: {galley.istio.io/analyze-suppress: NodeAddress}}
addressType: IPv4
endpoints: [{addresses: [192.0.2.1]}]
`

// reader may read everything except Secrets, and guest one namespace.
const reader = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [namespaces, nodes, pods, services, configmaps], verbs: [list]}
- {apiGroups: [discovery.k8s.io, networking.k8s.io, networking.istio.io, security.istio.io, telemetry.istio.io, extensions.istio.io],
      resources: ["*"], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: shop}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: guest, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: guest, namespace: shop}]
`

// TestAnalyze: analyze finds the mistakes in a cluster, in pages, and with files that override its objects. A user who
// may not read everything is told what was not analyzed.
func TestAnalyze(t *testing.T) {
	t.Parallel()
	ctx, c := empty(t)
	must := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	must(c.Apply(ctx, []byte(mistakes)))
	must(c.Apply(ctx, []byte(reader)))
	dir := t.TempDir()
	config := map[string]string{"admin": c.Kubeconfig()}
	for _, name := range []string{"reader", "guest"} {
		access, err := c.ServiceAccount(ctx, "shop", name)
		must(err)
		config[name] = filepath.Join(dir, name)
		must(access.WriteFile(config[name]))
	}
	// run returns the findings, each as code, object and message, and the exit code.
	run := func(user string, args ...string) ([]string, int) {
		t.Helper()
		var stderr strings.Builder
		cmd := exec.CommandContext(ctx, program, append([]string{"analyze", "-o", "json", "--kubeconfig", config[user]}, args...)...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		var report struct {
			Findings []struct{ Code, Object, Message string }
		}
		if err := json.Unmarshal(out, &report); err != nil {
			t.Fatalf("%v: %v\n%s%s", args, err, out, stderr.String())
		}
		var list []string
		for _, f := range report.Findings {
			list = append(list, f.Code+" "+f.Object+": "+f.Message)
		}
		return list, cmd.ProcessState.ExitCode()
	}
	has := func(list []string, part string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, part) })
	}
	check := func(what string, list []string, wanted, unwanted []string) {
		t.Helper()
		for _, part := range wanted {
			if !has(list, part) {
				t.Errorf("%s: no finding %s in\n%s", what, part, strings.Join(list, "\n"))
			}
		}
		for _, part := range unwanted {
			if has(list, part) {
				t.Errorf("%s: finding %s in\n%s", what, part, strings.Join(list, "\n"))
			}
		}
	}
	const route, credential, absent, proxy = "IST0101 VirtualService shop/web: no Service or ServiceEntry has the host wbe.shop",
		"BadCredential Secret edge/bad", "IST0101 Gateway edge/front: Secret edge/absent does not exist", "IST0103 Pod shop/web-1"

	const image = "IST0158 Namespace shop: the proxy image of these Pods is not mirror.example/proxyv2:1.3, which new Pods get: old"
	const machine, slice = "NodeAddress WorkloadEntry shop/host: 192.0.2.1 is an address of Node one", "NodeAddress EndpointSlice shop/host: "
	all, code := run("admin", "-A", "--page-size", "1")
	check("all, in pages", all, []string{route, credential, absent, proxy, image, machine, slice},
		[]string{"IST0141", "IST0101 VirtualService edge/edge", "EndpointSlice shop/meant"})
	if code != 79 {
		t.Errorf("exit code %d", code)
	}
	if again, _ := run("admin", "-A"); !slices.Equal(all, again) {
		t.Errorf("in one page:\n%s\nin many:\n%s", strings.Join(again, "\n"), strings.Join(all, "\n"))
	}
	some, _ := run("admin", "-n", "shop")
	check("one namespace", some, []string{route, proxy}, []string{" edge/"})
	none, code := run("admin", "-n", "default")
	if check("another", none, nil, []string{" shop/", " edge/"}); code != 0 {
		t.Errorf("exit code %d without findings", code)
	}

	// Files override the objects of the cluster.
	fixed := filepath.Join(dir, "fixed.yaml")
	must(os.WriteFile(fixed, []byte(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web}
spec: {hosts: [web], http: [{route: [{destination: {host: web, subset: v9}}]}]}
`), 0o600))
	over, code := run("admin", "-n", "shop", fixed)
	check("a file", over, []string{`IST0101 VirtualService shop/web: no DestinationRule defines subset "v9" of web.shop`},
		[]string{route, "DuplicateObject"})
	if code != 79 {
		t.Errorf("exit code %d with a file", code)
	}

	limited, _ := run("reader", "-A")
	check("without Secrets", limited, []string{route, proxy, "IST0141 : this user may not get secrets in namespace edge"},
		[]string{credential, absent, "gateway.networking.k8s.io"})
	guest, _ := run("guest", "-n", "shop")
	check("of one namespace", guest, []string{route, "IST0141 : this user may not list namespaces, nodes, ingressclasses.networking.k8s.io: ",
		", services, ", " outside namespace shop: "}, []string{"gateway.networking.k8s.io", "NodeAddress"})

	// The commands for a change or a move report the same gaps.
	change := filepath.Join(dir, "change.yaml")
	must(os.WriteFile(change, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: new}\n"), 0o600))
	for _, q := range []struct {
		args   []string
		codes  map[string]int // by user
		stderr bool
	}{
		{[]string{"migrate"}, map[string]int{"admin": 0, "guest": 79}, false},
		{[]string{"diff", "-f", change}, map[string]int{"admin": 0, "guest": 0}, true},
		{[]string{"why", "web-1.shop", "web.shop:80"}, map[string]int{"admin": 79, "guest": 1}, true}, // no kubelet says that a Pod is ready
	} {
		for user, want := range q.codes {
			var stdout, stderr strings.Builder
			cmd := exec.CommandContext(ctx, program, append(q.args, "--kubeconfig", config[user])...)
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
				t.Fatal(err)
			}
			said := stdout.String()
			if q.stderr {
				said = stderr.String()
			}
			if code := cmd.ProcessState.ExitCode(); code != want || strings.Contains(said, "this user may not list ") != (user == "guest") {
				t.Errorf("%s: %v: %d\n%s\n%s", user, q.args, code, &stdout, &stderr)
			}
		}
	}
}
