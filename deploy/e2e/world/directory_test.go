package world

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/deploy/samples"
)

const pod = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.96.0.1}
---
# Not for this package.
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: a}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: a, labels: {app: web, version: v1}}
spec:
  serviceAccountName: web
  containers: [{name: web, image: echo, args: ["-http=80", "-tcp=90", "-call=http://api/"]}]
status: {podIP: 10.0.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: plain, namespace: a, labels: {app: plain, sidecar.istio.io/inject: "false"}}
status: {podIP: 10.0.0.2}
`

func TestRead(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(pod), 0o600))
	got, err := Read(dir)
	must.Succeed(t, err)
	web := map[string]string{"app": "web", "version": "v1"}
	plain := map[string]string{"app": "plain", "sidecar.istio.io/inject": "false"}
	want := Directory{
		Hosts: map[string]netip.Addr{"web.a": netip.MustParseAddr("10.96.0.1")},
		Pods: []Pod{
			{
				Node: proxy.Node{
					Type: "sidecar", Addr: netip.MustParseAddr("10.0.0.1"), Name: "web-0", Namespace: "a", Workload: "web", ServiceAccount: "web",
					Labels:       web,
					Interception: "REDIRECT",
				},
				Version: "v1", Proxied: true, HTTP: []int{80}, TCP: []int{90}, Calls: []string{"http://api/"},
			},
			{Node: proxy.Node{Type: "sidecar", Addr: netip.MustParseAddr("10.0.0.2"), Name: "plain", Namespace: "a", Workload: "plain",
				Labels: plain}},
		},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Error(d)
	}
	for _, c := range []struct{ from, host, want string }{
		{"a", "web:80", "10.96.0.1:80"},
		{"b", "web.a:80", "10.96.0.1:80"},
		{"b", "web.a.svc.cluster.local:80", "10.96.0.1:80"},
		{"b", "192.0.2.1:80", "192.0.2.1:80"},
		{"b", "web:80", ""},
	} {
		if got, _ := got.Resolve(c.from, c.host); got != c.want {
			t.Errorf("%s from %s is %q, want %q", c.host, c.from, got, c.want)
		}
	}
}

// TestSample checks that every call a pod of the sample makes leads to a service, and that its Envoys can be told
// apart.
func TestSample(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, samples.Copy("bookinfo", dir))
	d, err := Read(dir)
	must.Succeed(t, err)
	seen := map[netip.Addr]string{}
	for _, p := range d.Pods {
		if other, ok := seen[p.Node.Addr]; ok {
			t.Errorf("%s and %s share the address %s", p.Node.Name, other, p.Node.Addr)
		}
		seen[p.Node.Addr] = p.Node.Name
		for _, call := range p.Calls {
			if _, err := d.Resolve(p.Node.Namespace, call[len("http://"):len(call)-1]); err != nil {
				t.Errorf("%s: %v", p.Node.Name, err)
			}
		}
	}
	if len(d.Pods) != 7 {
		t.Errorf("%d pods, want 7", len(d.Pods))
	}
}
