package gatewaytls

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// ingressMesh has the objects that Ingresses need: the proxies and ports that serve them, and a Service for their
// address.
const ingressMesh = `apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "{ingressSelector: ingress, ingressService: edge}"}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: gateway, namespace: ingress}
spec:
  hosts: [gateway.internal]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: %d}, {number: 443, name: https, protocol: HTTPS, targetPort: %d}]
  resolution: STATIC
  location: MESH_INTERNAL
  workloadSelector: {labels: {istio: ingress}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: ingress}
spec: {type: ExternalName, externalName: web.internal, ports: [{name: http, port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: mesh}
spec: {controller: istio.io/ingress-controller}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: ingress}
spec:
  ingressClassName: mesh
  tls: [{hosts: [three.example.org], secretName: three}]
  rules:
  - host: three.example.org
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
  - host: plain.example.org
    http:
      paths:
      - {path: /exact, pathType: Exact, backend: {service: {name: web, port: {number: 80}}}}
      - {path: /prefix, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}
      - {path: /missing, pathType: Prefix, backend: {service: {name: web, port: {name: missing}}}}
`

const edge = `apiVersion: v1
kind: Service
metadata: {name: edge, namespace: istio-system}
spec: {externalIPs: [%s], ports: [{name: http, port: 80}]}
`

// ingress makes a gateway serve an Ingress of the API server, over HTTP and TLS, by hosts and paths. The status has the
// address of the gateway's Service. Only the leader of two replicas writes it, and the other takes over.
func ingress(ctx context.Context, t *testing.T, c *cluster.Cluster, r *rig, issuer *ca) {
	must := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	apply := func(yaml string) { t.Helper(); must(c.Apply(ctx, []byte(yaml))) }
	ports := freePorts(t, 2)
	certificate, key := issuer.issue(t, "three.example.org", soon())
	apply(secret("three", map[string]string{"tls.crt": certificate, "tls.key": key}))
	apply(fmt.Sprintf(edge, "198.51.100.7"))
	apply(fmt.Sprintf(ingressMesh, ports[0], ports[1]))

	of := *r
	of.port = ports[1]
	of.serves("three.example.org", issuer.pool(), nil, issuer.serial)
	status := func(host, path string) int {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", ports[0], path), nil)
		must(err)
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		must(err)
		return resp.StatusCode
	}
	suite.Eventually(t, "the Ingress is served over HTTP", func() bool { return status("plain.example.org", "/exact") == http.StatusOK })
	for path, want := range map[string]int{"/exact/more": 404, "/prefix": 200, "/prefix/more": 200, "/prefixes": 404, "/missing": 503,
		"/": 404} {
		if got := status("plain.example.org", path); got != want {
			t.Errorf("%s is answered with %d, want %d", path, got, want)
		}
	}
	if got := status("three.example.org", "/any"); got != http.StatusOK {
		t.Errorf("the host of the certificate is answered with %d", got)
	}
	if got := status("other.example.org", "/exact"); got != http.StatusNotFound {
		t.Errorf("another host is answered with %d", got)
	}
	if !r.hasFinding("Ingress ingress/web", "spec.rules[1].http.paths[2].backend.service.port.name", "has no port missing") {
		t.Error("the port that is missing is no finding")
	}

	ingresses := c.Client().NetworkingV1().Ingresses("ingress")
	says := func(address string) {
		t.Helper()
		suite.Eventually(t, "the status says "+address, func() bool {
			i, err := ingresses.Get(ctx, "web", metav1.GetOptions{})
			return err == nil && len(i.Status.LoadBalancer.Ingress) == 1 && i.Status.LoadBalancer.Ingress[0].IP == address
		})
	}
	says("198.51.100.7")

	// A second replica reads the same and writes nothing, until the first has gone.
	between, err := faults.Start(ctx, c, "127.0.0.1")
	must(err)
	t.Cleanup(between.Close)
	work := t.TempDir()
	kubeconfig := filepath.Join(work, "kubeconfig")
	must(between.Access(c.Admin()).WriteFile(kubeconfig))
	second, err := controlplane.Start(ctx,
		controlplane.Options{Binary: programs.Pilot, Host: "127.0.0.1", WorkDir: work, Kubeconfig: kubeconfig})
	must(err)
	t.Cleanup(second.Stop)
	apply(fmt.Sprintf(edge, "198.51.100.8"))
	says("198.51.100.8")
	suite.Eventually(t, "the second replica stands for election", func() bool {
		return between.Count(faults.Match{Verbs: []string{"get"}, Resource: "leases"}) > 2
	})
	written := func() (n int) {
		for _, q := range between.Requests(faults.Match{Writes: true}) {
			if strings.Contains(q.Path, "/ingresses/") {
				n++
			}
		}
		return n
	}
	if n := written(); n > 0 {
		t.Errorf("the second replica has written %d times", n)
	}
	r.pilot.Stop()
	suite.Eventually(t, "the second replica leads", func() bool {
		l, err := c.Client().CoordinationV1().Leases("istio-system").Get(ctx, "istio-leader", metav1.GetOptions{})
		return err == nil && ptr.Deref(l.Spec.HolderIdentity, "") != "" && between.Count(faults.Match{Writes: true, Resource: "leases"}) > 0
	})
	apply(fmt.Sprintf(edge, "198.51.100.9"))
	says("198.51.100.9")
	if written() == 0 {
		t.Error("the status was written by nobody")
	}
}
