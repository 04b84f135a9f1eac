package gatewaytls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// clusterMesh has the objects of the cluster in addition to the service and the workload.
var clusterMesh = suite.NamespacesYAML("istio-system", "ingress") + `apiVersion: v1
kind: ServiceAccount
metadata: {name: gateway, namespace: ingress}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gateway, namespace: ingress}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get, list, watch]}]
---
`

// mayList lets the gateway's account list Secrets.
const mayList = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: gateway, namespace: ingress}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: gateway}
subjects: [{kind: ServiceAccount, name: gateway, namespace: ingress}]
`

const clusterGateway = serversYAML + `  - {port: {number: %[1]d, name: one, protocol: HTTPS}, hosts: [one.example.com],
    tls: {mode: SIMPLE, credentialName: one}}
  - {port: {number: %[1]d, name: two, protocol: HTTPS}, hosts: [two.example.com], tls: {mode: SIMPLE, credentialName: two}}
` + routesYAML

// TestCluster has the Secrets in a real API server: they are read when the gateway wants them and may have them, are
// rotated, and stay while the API server is away. What is missing is a finding. Then it has an Ingress.
func TestCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{})
	must.Succeed(t, err)
	t.Cleanup(c.Stop)
	must := func(err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	base, err := charts.Chart("base")
	must(err)
	must(c.ApplyPath(ctx, filepath.Join(base, "files", "crds")))
	apply := func(yaml string) { t.Helper(); must(c.Apply(ctx, []byte(yaml))) }
	ports := freePorts(t, 2)
	issuer := newCA(t)
	var serial int64
	make := func(name string) string {
		certificate, key := issuer.issue(t, name+".example.com", soon())
		serial = issuer.serial
		return secret(name, map[string]string{"tls.crt": certificate, "tls.key": key})
	}
	workload, rest, _ := strings.Cut(mesh(backend(t), 9), "\n---\napiVersion: v1\nkind: Pod")
	pod, rest, _ := strings.Cut("apiVersion: v1\nkind: Pod"+rest, "\n---\n")
	apply(clusterMesh + workload + "\n---\n" + rest + "\n---\n" + fmt.Sprintf(clusterGateway, ports[0]))
	apply(pod)
	apply(make("one"))
	first := serial

	work := t.TempDir()
	suite.LogTails(t, work)
	r := &rig{t: t, port: ports[0]}
	r.run(ctx, controlplane.Options{Kubeconfig: c.Kubeconfig(), WorkDir: work}, ports[1], true)

	// Its account may not list Secrets, so it gets none.
	suite.Eventually(t, "the gateway has asked for certificates", func() bool {
		stats, err := r.gateway.Stats(ctx, `^listener_manager.total_listeners_(warming|active)$`)
		return err == nil && stats["listener_manager.total_listeners_warming"]+stats["listener_manager.total_listeners_active"] > 0
	})
	if _, err := r.call("one.example.com", issuer.pool(), nil); err == nil {
		t.Fatal("a gateway that may not list Secrets has one")
	}
	apply(mayList)
	r.serves("one.example.com", issuer.pool(), nil, first)
	suite.Eventually(t, "the Secret that is missing is a finding", func() bool {
		return r.hasFinding("Gateway ingress/gw", "spec.servers[1].tls.credentialName", "Secret ingress/two does not exist")
	})
	apply(make("two"))
	r.serves("two.example.com", issuer.pool(), nil, serial)
	suite.Eventually(t, "nothing is missing", func() bool {
		return !r.hasFinding("Gateway ingress/gw", "spec.servers[1].tls.credentialName", "")
	})

	// Rotation, broken content, and an API server that is away.
	for range 3 {
		apply(make("one"))
		r.serves("one.example.com", issuer.pool(), nil, serial)
	}
	good := serial
	apply(secret("one", map[string]string{"tls.crt": "garbage", "tls.key": "garbage"}))
	suite.Eventually(t, "garbage is a finding",
		func() bool { return r.hasFinding("Secret ingress/one", `data["tls.crt"]`, "no certificate in PEM") })
	r.serves("one.example.com", issuer.pool(), nil, good)
	c.KillAPIServer()
	for range 20 {
		if _, err := r.call("one.example.com", issuer.pool(), nil); err != nil {
			t.Errorf("without an API server: %v", err)
		}
	}
	must(c.StartAPIServer(ctx))
	apply(make("one"))
	r.serves("one.example.com", issuer.pool(), nil, serial)

	// When access is revoked, the gateway loses the certificate, with either protocol. When it is granted again, the
	// certificate returns.
	for _, delta := range []bool{true, false} {
		if !delta && testing.Short() {
			break // a revocation is in force within half a minute
		}
		if !delta {
			r.gateway.Stop()
			r.gateway = r.proxy(work, "gateway-sotw", ports[1], false)
			r.serves("one.example.com", issuer.pool(), nil, serial)
		}
		must(c.Client().RbacV1().RoleBindings("ingress").Delete(ctx, "gateway", metav1.DeleteOptions{}))
		suite.Eventually(t, "the gateway has no certificate that anybody trusts", func() bool {
			_, err := r.call("one.example.com", issuer.pool(), nil)
			return errors.As(err, new(*tls.CertificateVerificationError))
		})
		apply(make("one"))
		apply(mayList)
		r.serves("one.example.com", issuer.pool(), nil, serial)
	}
	ingress(ctx, t, c, r, issuer)
}
