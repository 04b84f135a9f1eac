package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	namespaceKind = schema.GroupKind{Kind: "Namespace"}
	crdKind       = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	crdResource   = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// IstioCRDs returns the file of Istio's CustomResourceDefinitions, in the module istio.io/api. It must be called from
// within the module.
func IstioCRDs(ctx context.Context) (string, error) {
	dir, err := module(ctx, "istio.io/api")
	return filepath.Join(dir, "kubernetes", "customresourcedefinitions.gen.yaml"), err
}

// GatewayCRDs returns the folder of the Gateway API's CustomResourceDefinitions of the standard channel, in its module.
// It must be called from within the module.
func GatewayCRDs(ctx context.Context) (string, error) {
	dir, err := module(ctx, "sigs.k8s.io/gateway-api")
	return filepath.Join(dir, "config", "crd", "standard"), err
}

// ExperimentalGatewayCRDs returns the folder of the experimental channel, which includes the standard one.
func ExperimentalGatewayCRDs(ctx context.Context) (string, error) {
	dir, err := module(ctx, "sigs.k8s.io/gateway-api")
	return filepath.Join(dir, "config", "crd", "experimental"), err
}

// MultiClusterCRDs returns the folder of the Multi-Cluster Services API's CustomResourceDefinitions. It must be called
// from within the module.
func MultiClusterCRDs(ctx context.Context) (string, error) {
	dir, err := module(ctx, "sigs.k8s.io/mcs-api")
	return filepath.Join(dir, "config", "crd"), err
}

// module returns the folder of a module.
func module(ctx context.Context, name string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the module %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// InstallCRDs applies the CustomResourceDefinitions of a file or folder and waits until their kinds are served.
func (c *Cluster) InstallCRDs(ctx context.Context, path string) error {
	yaml, err := read(path)
	if err != nil {
		return err
	}
	return c.ApplyParallel(ctx, yaml, 4)
}

// established waits until the kinds of the definitions can be used.
func (c *Cluster) established(ctx context.Context, crds []*unstructured.Unstructured) error {
	for _, crd := range crds {
		err := poll(ctx, func() error {
			now, err := c.dynamic.Resource(crdResource).Get(ctx, crd.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			return isEstablished(now)
		})
		if err != nil {
			return fmt.Errorf("wait for %s: %w", describe(crd), err)
		}
		if err := c.discovered(ctx, crd); err != nil {
			return fmt.Errorf("wait for %s: %w", describe(crd), err)
		}
	}
	return nil
}

// discovered waits until discovery has every served version of the definition, which takes a little longer.
func (c *Cluster) discovered(ctx context.Context, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if served, _ := version["served"].(bool); !served {
			continue
		}
		name, _ := version["name"].(string)
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: name, Kind: kind})
		err := poll(ctx, func() error {
			_, err := c.mapping(ctx, o)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func isEstablished(crd *unstructured.Unstructured) error {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Established" && condition["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("it is not established: %v", conditions)
}

// ensureFor creates the namespaces of the objects and the ServiceAccounts of their Pods.
func (c *Cluster) ensureFor(ctx context.Context, objects []*unstructured.Unstructured) error {
	type account struct{ namespace, name string }
	var done []account
	for _, o := range objects {
		mapping, err := c.mapping(ctx, o)
		if err != nil {
			return err
		}
		if mapping.Scope.Name() != "namespace" {
			continue
		}
		need := []account{{namespaceOf(o), "default"}}
		if name, _, _ := unstructured.NestedString(o.Object, "spec", "serviceAccountName"); name != "" &&
			o.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Pod") {
			need = append(need, account{namespaceOf(o), name})
		}
		for _, a := range need {
			if slices.Contains(done, a) {
				continue
			}
			if err := c.ensureServiceAccount(ctx, a.namespace, a.name); err != nil {
				return err
			}
			done = append(done, a)
		}
	}
	return nil
}

// ensureServiceAccount creates a ServiceAccount and its namespace unless they exist.
func (c *Cluster) ensureServiceAccount(ctx context.Context, namespace, name string) error {
	_, err := c.typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s: %w", namespace, err)
	}
	accounts := c.typed.CoreV1().ServiceAccounts(namespace)
	for _, account := range slices.Compact([]string{"default", name}) {
		_, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make ServiceAccount %s/%s: %w", namespace, account, err)
		}
	}
	return nil
}

// deleteNamespace deletes a namespace with all its objects.
func (c *Cluster) deleteNamespace(ctx context.Context, name string) error {
	namespaces := c.typed.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, name, metav1.DeleteOptions{}); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	return c.FinishNamespace(ctx, name)
}

// FinishNamespace completes the deletion of a namespace: it deletes its objects, and then the namespace disappears.
func (c *Cluster) FinishNamespace(ctx context.Context, name string) error {
	namespaces := c.typed.CoreV1().Namespaces()
	if err := c.empty(ctx, name); err != nil {
		return fmt.Errorf("empty namespace %s: %w", name, err)
	}
	ns, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	ns.Spec.Finalizers = nil
	if _, err := namespaces.Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize namespace %s: %w", name, err)
	}
	return nil
}

// empty deletes all objects of all kinds in the namespace.
func (c *Cluster) empty(ctx context.Context, namespace string) error {
	lists, err := c.typed.Discovery().ServerPreferredNamespacedResources()
	if err != nil {
		return err
	}
	var all errgroup.Group // the first read of a kind may take a second
	all.SetLimit(16)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "delete") && slices.Contains(r.Verbs, "list") {
				all.Go(func() error { return c.deleteAll(ctx, gv.WithResource(r.Name), namespace) })
			}
		}
	}
	return all.Wait()
}

// deleteAll deletes objects one by one, because some kinds, such as Services, could not always delete a collection.
func (c *Cluster) deleteAll(ctx context.Context, resource schema.GroupVersionResource, namespace string) error {
	objects, now := c.dynamic.Resource(resource).Namespace(namespace), int64(0)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err := objects.Delete(ctx, list.Items[i].GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
