package autoregistration

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	networkingv1 "istio.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Kubernetes is the Store of an API server. It writes patches, which leave fields of other writers unchanged.
type Kubernetes struct {
	client dynamic.NamespaceableResourceInterface
}

// NewKubernetes returns a Store of the API server of c.
func NewKubernetes(c *rest.Config) (*Kubernetes, error) {
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("failed to make a client for WorkloadEntries: %w", err)
	}
	k := kinds.WorkloadEntry
	return &Kubernetes{client.Resource(schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Plural})}, nil
}

// entryStatus is the part of the status that is read and written. Conditions of other types are preserved.
type entryStatus struct {
	Conditions []map[string]any `json:"conditions"`
}

const conditionHealthy = "Healthy"

// Get implements Store.
func (k *Kubernetes) Get(ctx context.Context, key types.NamespacedName) (*Entry, error) {
	u, err := k.client.Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, classify(err)
	}
	return decode(key, u)
}

// decode returns the entry in an object of the API server.
func decode(key types.NamespacedName, u *unstructured.Unstructured) (*Entry, error) {
	e := &Entry{
		NamespacedName: key, UID: string(u.GetUID()), Version: u.GetResourceVersion(), Labels: u.GetLabels(), Annotations: u.GetAnnotations(),
		Created: u.GetCreationTimestamp().Time, Spec: &networkingv1.WorkloadEntry{},
	}
	if e.Annotations == nil {
		e.Annotations = map[string]string{}
	}
	for _, r := range u.GetOwnerReferences() {
		if r.Kind == kinds.WorkloadGroup.Name {
			e.Owner = Owner{r.Name, string(r.UID)}
		}
	}
	conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == conditionHealthy {
			text := func(field string) string { s, _ := m[field].(string); return s }
			e.Health = &Condition{
				Healthy: text("status") == "True", Message: text("message"),
				Probed: parseStamp(text("lastProbeTime")), Changed: parseStamp(text("lastTransitionTime")),
			}
		} else if ok {
			e.conditions = append(e.conditions, m)
		}
	}
	return e, nil
}

// Create implements Store.
func (k *Kubernetes) Create(ctx context.Context, e *Entry) error {
	b, err := protojson.Marshal(e.Spec)
	if err != nil {
		return fmt.Errorf("encode %s: %w", e.NamespacedName, err)
	}
	var spec map[string]any
	if err := json.Unmarshal(b, &spec); err != nil {
		return fmt.Errorf("encode %s: %w", e.NamespacedName, err)
	}
	kind, controller := kinds.WorkloadEntry, true
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(kind.APIVersion(kind.Versions[0]))
	u.SetKind(kind.Name)
	u.SetNamespace(e.Namespace)
	u.SetName(e.Name)
	u.SetLabels(e.Labels)
	u.SetAnnotations(e.Annotations)
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: u.GetAPIVersion(), Kind: kinds.WorkloadGroup.Name, Name: e.Owner.Name, UID: types.UID(e.Owner.UID), Controller: &controller,
	}})
	u, err = k.client.Namespace(e.Namespace).Create(ctx, u, metav1.CreateOptions{})
	return e.replace(u, err)
}

// replace sets the entry to the object in a response.
func (e *Entry) replace(u *unstructured.Unstructured, err error) error {
	if err != nil {
		return classify(err)
	}
	stored, err := decode(e.NamespacedName, u)
	if err != nil {
		return err
	}
	stored.Spec = e.Spec // no other component writes it
	*e = *stored
	return nil
}

// Update implements Store.
func (k *Kubernetes) Update(ctx context.Context, e *Entry) error {
	annotations := map[string]any{}
	for _, name := range []string{annotationController, annotationConnected, annotationDisconnected, annotationHealth} {
		if v, ok := e.Annotations[name]; ok {
			annotations[name] = v
		} else if name != annotationHealth {
			annotations[name] = nil
		}
	}
	meta := map[string]any{"uid": e.UID, "annotations": annotations}
	if e.Version != "" {
		meta["resourceVersion"] = e.Version
	}
	return k.patch(ctx, e, map[string]any{"metadata": meta})
}

// UpdateStatus implements Store.
func (k *Kubernetes) UpdateStatus(ctx context.Context, e *Entry) error {
	s := entryStatus{e.conditions}
	if h := e.Health; h != nil {
		c := map[string]any{
			"type": conditionHealthy, "status": "False",
			"lastProbeTime": h.Probed.UTC().Format(time.RFC3339Nano), "lastTransitionTime": h.Changed.UTC().Format(time.RFC3339Nano),
		}
		if h.Healthy {
			c["status"] = "True"
		}
		if h.Message != "" {
			c["message"] = h.Message
		}
		s.Conditions = append(s.Conditions[:len(s.Conditions):len(s.Conditions)], c)
	}
	return k.patch(ctx, e, map[string]any{"metadata": map[string]any{"resourceVersion": e.Version, "uid": e.UID}, "status": s}, "status")
}

func (k *Kubernetes) patch(ctx context.Context, e *Entry, patch map[string]any, subresource ...string) error {
	b, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode %s: %w", e.NamespacedName, err)
	}
	u, err := k.client.Namespace(e.Namespace).Patch(ctx, e.Name, types.MergePatchType, b, metav1.PatchOptions{}, subresource...)
	return e.replace(u, err)
}

// Delete implements Store.
func (k *Kubernetes) Delete(ctx context.Context, e *Entry) error {
	uid := types.UID(e.UID)
	preconditions := metav1.Preconditions{UID: &uid, ResourceVersion: &e.Version}
	return classify(k.client.Namespace(e.Namespace).Delete(ctx, e.Name, metav1.DeleteOptions{Preconditions: &preconditions}))
}

// classify wraps errors of the API server in the errors of a Store.
func classify(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}
