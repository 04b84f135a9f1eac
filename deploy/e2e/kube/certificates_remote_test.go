package kube

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// second starts another cluster. It returns the cluster and the kubeconfig of the chart's account for readers.
func (w *world) second() (two *world, kubeconfig []byte) {
	w.T.Helper()
	two = &world{w.Another()}
	two.Install("base")
	reader, err := two.ServiceAccount(w.Ctx, root, "istio-reader-service-account")
	w.Must(err)
	kubeconfig, err = reader.Kubeconfig()
	w.Must(err)
	return two, kubeconfig
}

// name writes the Secret that names a cluster.
func (w *world) name(cluster string, kubeconfig []byte) {
	w.T.Helper()
	_, err := w.Client().CoreV1().Secrets(root).Create(w.Ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: cluster, Labels: map[string]string{"istio/multiCluster": "true"}},
		Data:       map[string][]byte{cluster: kubeconfig},
	}, metav1.CreateOptions{})
	w.Must(err)
}

// TestRemoteCluster issues certificates to workloads of a cluster that a Secret names, for tokens of that cluster, as
// long as the Secret exists. A token of one cluster is invalid for another.
func TestRemoteCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--set", "env.CA_TRUSTED_NODE_ACCOUNTS=kube-system/ztunnel", "--set-json",
		`extraContainerArgs=["--clusterAliases=zwei=two"]`)
	w.Write(pod("a", "web-0", "web", "n1") + "---" + pod("b", "db-0", "db", "n1"))
	two, kubeconfig := w.second()
	two.Write(pod("a", "web-0", "web", "n1") + "---" + pod("kube-system", "ztunnel-1", "ztunnel", "n1") + "---" +
		pod("c", "cache-0", "cache", "n1"))

	r := w.launch("istiod-0").Ready()
	roots := w.secretRoots()
	ask := func(token, cluster, impersonate string) error {
		agent := dial(t, r.SecureGRPC, roots, token)
		agent.cluster = cluster
		_, err := agent.certificate(w.Ctx, impersonate)
		return err
	}
	here, there := w.token("a", "web", "web-0", "istio-ca"), two.token("a", "web", "web-0", "istio-ca")
	if err := ask(there, "two", ""); status.Code(err) != codes.Unauthenticated {
		t.Errorf("before the cluster is named: %v", err)
	}
	w.name("two", kubeconfig)
	w.Eventually("a token of the remote cluster is good", func() error { return ask(there, "two", "") })
	w.Must(ask(there, "zwei", ""))
	w.Must(ask(two.token("a", "web", "", "istio-ca"), "two", "")) // its own API server verifies it
	for what, err := range map[string]error{
		"of the other cluster, as this one's":  ask(there, "", ""),
		"of the other cluster, by its name":    ask(there, "Kubernetes", ""),
		"of this cluster, as the other one's":  ask(here, "two", ""),
		"of a cluster that nobody knows":       ask(there, "three", ""),
		"of no pod, of this, as the other's":   ask(w.token("a", "web", "", "istio-ca"), "two", ""),
		"of no pod, of the other, as this one": ask(two.token("a", "web", "", "istio-ca"), "", ""),
	} {
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("a token %s: %v", what, err)
		}
	}

	// A node's proxy may request certificates for the pods of its own node. A node of that name in another cluster is a
	// different node.
	ztunnel := two.token("kube-system", "ztunnel", "ztunnel-1", "istio-ca")
	w.Eventually("the pods of the remote cluster are known",
		func() error { return ask(ztunnel, "two", "spiffe://cluster.local/ns/c/sa/cache") })
	if err := ask(ztunnel, "two", "spiffe://cluster.local/ns/b/sa/db"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("for a pod of the node of that name in another cluster: %v", err)
	}

	w.Must(w.Client().CoreV1().Secrets(root).Delete(w.Ctx, "two", metav1.DeleteOptions{}))
	w.Eventually("tokens of the cluster are good no more", func() error {
		if err := ask(there, "two", ""); status.Code(err) != codes.Unauthenticated {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
}
