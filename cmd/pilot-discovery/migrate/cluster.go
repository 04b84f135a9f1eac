package migrate

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

// readAround reads the objects of a cluster that belong to the control plane.
func (f *flags) readAround(ctx context.Context) (around migration.Around, err error) {
	config, err := f.Cluster.Connection()
	if err != nil {
		return around, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return around, err
	}
	for _, x := range []struct {
		schema.GroupVersionResource
		namespace, kind string
	}{
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, f.World.Namespace, "Deployment"},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, f.World.Namespace, "DaemonSet"},
		{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, f.World.Namespace, "ConfigMap"},
		{schema.GroupVersionResource{Version: "v1", Resource: "services"}, f.World.Namespace, "Service"},
		{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", "Namespace"},
		{schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}, "",
			"MutatingWebhookConfiguration"},
		{schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "",
			"CustomResourceDefinition"},
	} {
		all, err := client.Resource(x.GroupVersionResource).Namespace(x.namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			around.Forbidden = append(around.Forbidden, x.Resource)
			continue
		}
		if err != nil {
			return around, fmt.Errorf("read %s: %w", x.Resource, err)
		}
		for n := range all.Items {
			u := &all.Items[n]
			u.SetKind(x.kind)
			around.Objects = append(around.Objects, migration.Object{Unstructured: u})
		}
	}
	err = f.readSecrets(ctx, config, &around)
	return around, err
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
