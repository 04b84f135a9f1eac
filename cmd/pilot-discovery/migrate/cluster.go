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

// readThings reads the objects of a cluster that belong to the control plane. It reports objects that this user may not
// read and leaves them out.
func (f *flags) readThings(ctx context.Context) ([]migration.Object, error) {
	config, err := f.Cluster.Connection()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	var list []migration.Object
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
			u := &unstructured.Unstructured{Object: map[string]any{}}
			u.SetKind("Forbidden")
			u.SetName(x.Resource)
			list = append(list, migration.Object{Unstructured: u})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", x.Resource, err)
		}
		for n := range all.Items {
			u := &all.Items[n]
			u.SetKind(x.kind)
			list = append(list, migration.Object{Unstructured: u})
		}
	}
	secrets, err := f.readSecrets(ctx, config)
	return append(list, secrets...), err
}

// readSecrets returns the Secrets that name remote clusters or have a CA, without their content.
func (f *flags) readSecrets(ctx context.Context, config *rest.Config) (list []migration.Object, err error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	all, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(f.World.Namespace).List(ctx,
		metav1.ListOptions{})
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if apierrors.IsForbidden(err) {
		u.SetKind("Forbidden")
		u.SetName("secrets")
		return []migration.Object{{Unstructured: u}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the names of secrets: %w", err)
	}
	for n := range all.Items {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetKind("Secret")
		u.SetNamespace(all.Items[n].Namespace)
		u.SetName(all.Items[n].Name)
		u.SetLabels(all.Items[n].Labels)
		list = append(list, migration.Object{Unstructured: u})
	}
	return list, nil
}
