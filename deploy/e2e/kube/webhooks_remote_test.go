package kube

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// remote starts a cluster that the charts connect to the control plane of w, with its webhooks at w's port. It returns
// the kubeconfig of its reader.
func (w *admission) remote() (two *admission, kubeconfig []byte) {
	w.T.Helper()
	two = &admission{World: w.Another(), port: w.port}
	two.Install("base", "--set", "global.externalIstiod=true,base.validationURL=https://"+w.port+"/validate")
	two.Install("istiod", "--set", "istiodRemote.enabled=true,istiodRemote.injectionURL=https://"+w.port+
		"/inject/cluster/two/net/network2,base.validationURL=https://"+w.port+"/validate")
	two.Write("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enabled}}\n")
	reader, err := two.ServiceAccount(w.Ctx, root, "istio-reader-service-account")
	w.Must(err)
	kubeconfig, err = reader.Kubeconfig()
	w.Must(err)
	return two, kubeconfig
}

// annotate names the control plane that may write to the cluster. null means none.
func (w *admission) annotate(text string) {
	w.T.Helper()
	patch := `{"metadata":{"annotations":{"topology.istio.io/controlPlaneClusters":` + text + `}}}`
	_, err := w.Client().CoreV1().Namespaces().Patch(w.Ctx, root, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	w.Must(err)
}

// roots returns the roots of a namespace.
func (w *admission) roots(namespace string) (string, error) {
	m, err := w.Client().CoreV1().ConfigMaps(namespace).Get(w.Ctx, "istio-ca-root-cert", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return m.Data["root-cert.pem"], nil
}

// untouched returns an error if a control plane wrote into the cluster.
func (w *admission) untouched() error {
	if _, err := w.roots("shop"); err == nil {
		return errors.New("the namespace shop has roots")
	}
	list, _, err := w.hooks(validating, "istiod-default-validator")
	if err != nil {
		return err
	}
	if len(list[0].ClientConfig.CABundle) != 0 || list[0].FailurePolicy != "Ignore" {
		return fmt.Errorf("a webhook has changed: %+v", list)
	}
	return nil
}

// userPod returns a pod as a user writes it.
func userPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
}

// TestRemoteClusters: if the system namespace of a remote cluster names the control plane's cluster, the control plane
// writes the same objects there as in its own cluster: caBundles, failurePolicy, and the roots of each namespace. It
// only reads other remote clusters.
func TestRemoteClusters(t *testing.T) {
	t.Parallel()
	w := startAdmission(t, "global.externalIstiod=true,global.multiCluster.clusterName=one,env.PILOT_ENABLE_ANALYSIS=false")
	w.plug("one")
	two, kubeconfig := w.remote()
	two.Must(two.Client().CoreV1().ServiceAccounts("shop").Delete(two.Ctx, "default", metav1.DeleteOptions{}))
	two.Write("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: shop}\n")
	w.launch("istiod-0")
	_, err := w.Client().CoreV1().Secrets(root).Create(w.Ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "two", Labels: map[string]string{"istio/multiCluster": "true"}},
		Data:       map[string][]byte{"two": kubeconfig},
	}, metav1.CreateOptions{})
	w.Must(err)

	two.annotate(`"another"`)
	w.Eventually("the own cluster is kept", func() error {
		_, err := w.roots("default")
		return err
	})
	two.Must(two.untouched())
	if _, err := two.Client().CoreV1().Pods("shop").Create(two.Ctx, userPod("early"), metav1.CreateOptions{}); err == nil ||
		!strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("an API server that has no caBundle: %v", err)
	}

	two.annotate(`"another, one"`)
	two.kept("of the remote cluster", "istiod-default-validator", 1)
	two.kept("of the remote cluster", "istio-validator-istio-system", 1)
	two.Eventually("the injection webhook has the caBundle", func() error {
		list, _, err := two.hooks(mutating, "istio-sidecar-injector")
		for _, h := range list {
			if len(h.ClientConfig.CABundle) == 0 {
				err = errors.Join(err, fmt.Errorf("%s has none", h.Name))
			}
		}
		return err
	})
	same := func(namespace string) {
		t.Helper()
		two.Eventually("the roots are those of the control plane, in "+namespace, func() error {
			have, err := two.roots(namespace)
			if err != nil {
				return err
			}
			want, err := w.roots("default")
			if err == nil && have != want {
				err = fmt.Errorf("%s, want %s", have, want)
			}
			return err
		})
	}
	same("shop")
	if err := two.create(gateway("bad", bad)); err == nil || !strings.Contains(err.Error(), "configuration is invalid") {
		t.Errorf("an invalid object: %v", err)
	}
	two.Must(two.create(gateway("good", good)))
	p, err := two.Client().CoreV1().Pods("shop").Create(two.Ctx, userPod("web"), metav1.CreateOptions{})
	two.Must(err)
	if !injected(p) {
		t.Errorf("a pod of the remote cluster has no proxy that knows its cluster and its network: %+v", p.Spec)
	}

	// A new root, and a new namespace.
	w.plug("two")
	two.kept("with both roots", "istiod-default-validator", 2)
	same("shop")
	two.Write("apiVersion: v1\nkind: Namespace\nmetadata: {name: late}\n")
	same("late")
	two.edit(validating, "istiod-default-validator", `[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)
	two.kept("after somebody removed it", "istiod-default-validator", 2)

	// A control plane that is no longer named writes no more.
	two.annotate("null")
	two.Eventually("the Leases are given up", func() error {
		list, err := two.Client().CoordinationV1().Leases(root).List(two.Ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, l := range list.Items {
			if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
				err = errors.Join(err, fmt.Errorf("%s is held by %s", l.Name, *l.Spec.HolderIdentity))
			}
		}
		return err
	})
	_, before, err := two.hooks(validating, "istiod-default-validator")
	two.Must(err)
	w.plug("three")
	w.Eventually("the own cluster has the newest root", func() error {
		text, err := w.roots("default")
		if err == nil && strings.Count(text, "BEGIN CERTIFICATE") == 0 {
			err = errors.New("no root")
		}
		if left, _ := two.roots("shop"); err == nil && text == left {
			err = errors.New("still the one before")
		}
		return err
	})
	if _, after, err := two.hooks(validating, "istiod-default-validator"); err != nil || after != before {
		t.Errorf("written after the annotation went: %v", err)
	}
}

// injected reports whether a pod has a proxy of cluster two, in network2.
func injected(p *corev1.Pod) bool {
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		var text bytes.Buffer
		for _, e := range c.Env {
			text.WriteString(e.Name + "=" + e.Value + "\n")
		}
		if c.Name == "istio-proxy" && strings.Contains(text.String(), "ISTIO_META_CLUSTER_ID=two\n") &&
			strings.Contains(text.String(), "ISTIO_META_NETWORK=network2\n") {
			return true
		}
	}
	return false
}
