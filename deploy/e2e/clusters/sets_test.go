package clusters

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// setReader lets the mesh's control plane read what the second cluster exports and imports.
const setReader = `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: set-reader}
rules:
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceexports, serviceimports]
  verbs: [get, list, watch]
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: set-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: set-reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: istio-system}
`

const (
	export = `
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata: {name: echo, namespace: mesh}
`
	// The ServiceImports of the clusters have addresses of their own, as an MCS controller may assign them.
	importHere = `
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: echo, namespace: mesh}
spec: {type: ClusterSetIP, ips: [10.96.0.99], ports: [{name: http, port: 80}]}
`
	importThere = `
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceImport
metadata: {name: echo, namespace: mesh}
spec: {type: ClusterSetIP, ips: [10.96.0.98], ports: [{name: http, port: 80}]}
`
	setAddr, setHost = "10.96.0.99:80", "echo.mesh.svc.clusterset.local"
)

// TestSets exports a Service of the second cluster and takes it back, imports it in both, and lets the control plane
// create the ServiceExports of its own cluster, all under load.
func TestSets(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	m := &mesh{t: t, work: t.TempDir(), env: []string{
		"ENABLE_MCS_SERVICE_DISCOVERY=true", "ENABLE_MCS_HOST=true", "ENABLE_MCS_AUTO_EXPORT=true",
	}}
	suite.LogTails(t, m.work)
	start := func(ctx context.Context, to **cluster.Cluster, yaml string, crds ...string) error {
		c, err := cluster.Start(ctx, cluster.Options{})
		if err != nil {
			return err
		}
		t.Cleanup(c.Stop)
		*to = c
		for _, path := range crds {
			if err := c.InstallCRDs(ctx, path); err != nil {
				return err
			}
		}
		return c.Apply(ctx, []byte(yaml))
	}
	all, each := errgroup.WithContext(ctx)
	all.Go(func() error {
		return start(each, &m.two, secondCluster+setReader+slice("echo", "echo-3", "10.10.2.23", ready), os.Getenv(setsVar))
	})
	all.Go(func() error {
		return start(each, &m.one, firstCluster+slice("echo", "echo-1", "10.10.0.21", ready), os.Getenv(crdsVar), os.Getenv(setsVar))
	})
	must.Succeed(t, all.Wait())
	reader, err := m.two.ServiceAccount(ctx, "istio-system", "reader")
	must.Succeed(t, err)
	apply(t, m.one, remoteSecret(map[string][]byte{"two": encode(t, reader)}))
	kubeconfig := filepath.Join(m.work, "kubeconfig")
	must.Succeed(t, m.one.Admin().WriteFile(kubeconfig))
	m.serve(ctx, t, "", kubeconfig)
	m.own = m.run(ctx, t, firstCluster, "", true, func(name string) bool { return name == "client" || name == "echo-1" })
	m.remote = m.run(ctx, t, secondCluster, "two", false, func(name string) bool { return name == "client-two" || name == "echo-3" })

	// Clients in both clusters call their own pods alone. The first cluster's ServiceExports are created.
	here, there := begin(t, echoAddr, "echo", m.own.Pod("client")), begin(t, otherAddr, "echo", m.remote.Pod("client-two"))
	here.Answers(t, "echo-1")
	there.Answers(t, "echo-3")
	resource := schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "serviceexports"}
	exports := m.one.Dynamic().Resource(resource)
	service, err := m.one.Client().CoreV1().Services("mesh").Get(ctx, "echo", metav1.GetOptions{})
	must.Succeed(t, err)
	suite.Eventually(t, "the ServiceExport of echo belongs to the Service", func() bool {
		o, err := exports.Namespace("mesh").Get(ctx, "echo", metav1.GetOptions{})
		return err == nil && len(o.GetOwnerReferences()) == 1 && o.GetOwnerReferences()[0].UID == service.UID
	})
	there.Answers(t, "echo-1")
	if n := here.Heard("echo-3"); n > 0 {
		t.Errorf("echo-3 has answered %d requests of the other cluster, which does not export it", n)
	}
	if list, err := exports.Namespace("default").List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("exports of the namespace default: %v, %v", list, err)
	}

	apply(t, m.two, export)
	here.Answers(t, "echo-3")
	must.Succeed(t, m.two.Delete(ctx, []byte(export)))
	here.Silent(t, "echo-3")
	here.Answers(t, "echo-1")

	// The host of all clusters.
	apply(t, m.two, export+importThere)
	apply(t, m.one, importHere)
	call := send(m.own.Pod("client"), setAddr, setHost)
	suite.Eventually(t, setHost+" answers", func() bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		name, err := call(ctx)
		return err == nil && name != ""
	})
	set := begin(t, setAddr, setHost, m.own.Pod("client"))
	set.Answers(t, "echo-1")
	set.Answers(t, "echo-3")
	must.Succeed(t, m.two.Delete(ctx, []byte(export)))
	set.Silent(t, "echo-3")
	set.Answers(t, "echo-1")
	m.healthy(t)
}
