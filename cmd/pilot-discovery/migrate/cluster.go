package migrate

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// kind is a kind of objects to read.
type kind struct {
	schema.GroupVersionResource
	name string
}

func deployments() kind {
	return kind{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "Deployment"}
}

func daemonSets() kind {
	return kind{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, "DaemonSet"}
}

// beside returns the kinds of the objects that charts make beside a workload.
func beside() []kind {
	return []kind{
		{schema.GroupVersionResource{Version: "v1", Resource: "services"}, "Service"},
		{schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, "ServiceAccount"},
		{schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}, "HorizontalPodAutoscaler"},
		{schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}, "PodDisruptionBudget"},
	}
}

// clusterReader reads objects of a cluster.
type clusterReader struct {
	client dynamic.Interface
	around *migration.Around
}

// list calls f with each object of a kind, a page at a time. The namespace may be empty, for all of them. Without the
// right to list them it notes that.
func (c *clusterReader) list(ctx context.Context, k kind, namespace string, o metav1.ListOptions, f func(migration.Object)) error {
	for {
		page, err := c.client.Resource(k.GroupVersionResource).Namespace(namespace).List(ctx, o)
		if apierrors.IsForbidden(err) {
			if !slices.Contains(c.around.Forbidden, k.Resource) {
				c.around.Forbidden = append(c.around.Forbidden, k.Resource)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", k.Resource, err)
		}
		for n := range page.Items {
			u := &page.Items[n]
			u.SetKind(k.name)
			f(migration.Object{Unstructured: u})
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return nil
		}
	}
}

// readAround reads the objects of a cluster that belong to the control plane, and the releases of Helm.
func (f *flags) readAround(ctx context.Context) (around migration.Around, store *helmStore, err error) {
	store = &helmStore{}
	config, err := f.Cluster.Connection()
	if err != nil {
		return around, nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return around, nil, err
	}
	c := &clusterReader{client, &around}
	add := func(o migration.Object) { around.Objects = append(around.Objects, o) }
	own := append([]kind{deployments(), daemonSets(), {schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap"}},
		beside()...)
	for _, k := range own {
		if err := c.list(ctx, k, f.World.Namespace, metav1.ListOptions{}, add); err != nil {
			return around, nil, err
		}
	}
	for _, k := range []kind{
		{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "Namespace"},
		{schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
			"MutatingWebhookConfiguration"},
		{schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
			"CustomResourceDefinition"},
	} {
		if err := c.list(ctx, k, "", metav1.ListOptions{}, add); err != nil {
			return around, nil, err
		}
	}
	if err := f.readSecrets(ctx, config, &around); err != nil {
		return around, nil, err
	}
	if err := f.readReleases(ctx, c, store); err != nil {
		return around, nil, err
	}
	return around, store, f.readGateways(ctx, c, store, add)
}

// readReleases reads the releases of Helm: in all namespaces, or, without the right to that, in the control plane's.
func (f *flags) readReleases(ctx context.Context, c *clusterReader, store *helmStore) error {
	secrets := kind{schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret"}
	maps := kind{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap"}
	for _, k := range []kind{secrets, maps} {
		o := metav1.ListOptions{LabelSelector: helmReleases, Limit: 20} // a release may have a megabyte
		tried := &clusterReader{c.client, &migration.Around{}}
		if err := tried.list(ctx, k, "", o, store.take); err != nil {
			return err
		}
		if len(tried.around.Forbidden) == 0 {
			continue
		}
		store.points = append(store.points, migration.Point{Text: fmt.Sprintf("this user may not list %s outside namespace %s: the values of "+
			"releases elsewhere were not read", k.Resource, f.World.Namespace), Fix: "give them by --values, as `helm get values` prints them"})
		if err := c.list(ctx, k, f.World.Namespace, o, store.take); err != nil {
			return err
		}
	}
	return nil
}

// readGateways reads the gateways outside the control plane's namespace that Helm has not installed, and what is beside
// them.
func (f *flags) readGateways(ctx context.Context, c *clusterReader, store *helmStore, add func(migration.Object)) error {
	var namespaces []string
	for _, k := range []kind{deployments(), daemonSets()} {
		tried := &clusterReader{c.client, &migration.Around{}} // it may be forbidden: the gateways are then given by --values
		err := tried.list(ctx, k, "", metav1.ListOptions{LabelSelector: "app,istio", Limit: 100}, func(t migration.Object) {
			if _, ok := gatewayOf(t); !ok || t.GetNamespace() == f.World.Namespace ||
				store.releases[t.GetNamespace()+"/"+releaseName(t)] != nil {
				return
			}
			add(t)
			if !slices.Contains(namespaces, t.GetNamespace()) {
				namespaces = append(namespaces, t.GetNamespace())
			}
		})
		if err != nil {
			return err
		}
		if len(tried.around.Forbidden) > 0 {
			store.points = append(store.points, migration.Point{Text: fmt.Sprintf("this user may not list %s outside namespace %s: gateways there "+
				"that Helm has not installed are not known", k.Resource, f.World.Namespace), Fix: "give their values by --values"})
		}
	}
	for _, namespace := range namespaces {
		for _, k := range beside() {
			if err := c.list(ctx, k, namespace, metav1.ListOptions{}, add); err != nil {
				return err
			}
		}
	}
	return nil
}

// readSecrets reads the Secrets that name remote clusters or have a CA, without their content.
func (f *flags) readSecrets(ctx context.Context, config *rest.Config, around *migration.Around) error {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	all, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(f.World.Namespace).List(ctx,
		metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		around.Forbidden = append(around.Forbidden, "secrets")
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the names of secrets: %w", err)
	}
	for n := range all.Items {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetKind("Secret")
		u.SetNamespace(all.Items[n].Namespace)
		u.SetName(all.Items[n].Name)
		u.SetLabels(all.Items[n].Labels)
		around.Objects = append(around.Objects, migration.Object{Unstructured: u})
	}
	return nil
}
