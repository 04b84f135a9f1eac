package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// owned returns the pods of each controller, by name.
func (n *Node) owned() (map[types.UID][]*corev1.Pod, error) {
	pods, err := n.factory.Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	owned := map[types.UID][]*corev1.Pod{}
	for _, p := range pods {
		if o := metav1.GetControllerOf(p); o != nil {
			owned[o.UID] = append(owned[o.UID], p)
		}
	}
	return owned, nil
}

// podOf returns pod i of a controller, on this node.
func podOf(template *corev1.PodTemplateSpec, namespace, prefix string, i int, owner *metav1.OwnerReference) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-%d", prefix, i), GenerateName: prefix + "-", Namespace: namespace,
		Labels: maps.Clone(template.Labels), Annotations: template.Annotations, OwnerReferences: []metav1.OwnerReference{*owner},
	}, Spec: *template.Spec.DeepCopy()}
	p.Spec.NodeName = name
	return p
}

// create creates a pod, which may exist.
func (n *Node) create(p *corev1.Pod) error {
	_, err := n.o.Cluster.Client().CoreV1().Pods(p.Namespace).Create(n.ctx, p, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// end deletes a pod, which may be gone.
func (n *Node) end(p *corev1.Pod) error {
	err := n.o.Cluster.Client().CoreV1().Pods(p.Namespace).Delete(n.ctx, p.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// syncReplicaSets creates and deletes the pods of ReplicaSets.
func (n *Node) syncReplicaSets() error {
	all, err := n.factory.Apps().V1().ReplicaSets().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	owned, err := n.owned()
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range all {
		if s.DeletionTimestamp == nil {
			errs = append(errs, n.syncReplicaSet(s, owned[s.UID]))
		}
	}
	return errors.Join(errs...)
}

func (n *Node) syncReplicaSet(s *appsv1.ReplicaSet, owned []*corev1.Pod) error {
	want := int(ptr.Deref(s.Spec.Replicas, 1))
	taken, left, ready := map[string]bool{}, 0, int32(0)
	var errs []error
	for _, p := range owned {
		taken[p.Name] = true
		switch {
		case p.DeletionTimestamp != nil:
			continue
		case left == want:
			errs = append(errs, n.end(p))
			continue
		}
		left++
		if isReady(p) {
			ready++
		}
	}
	owner := metav1.NewControllerRef(s, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	for i := 0; left < want; i++ {
		if p := podOf(&s.Spec.Template, s.Namespace, s.Name, i, owner); !taken[p.Name] {
			errs = append(errs, n.create(p))
			left++
		}
	}
	status := appsv1.ReplicaSetStatus{ObservedGeneration: s.Generation, Replicas: int32(left), FullyLabeledReplicas: int32(left),
		ReadyReplicas: ready, AvailableReplicas: ready}
	if now := s.Status; now.ObservedGeneration != status.ObservedGeneration || now.ReadyReplicas != ready || now.Replicas != status.Replicas {
		s = s.DeepCopy()
		s.Status = status
		_, err := n.o.Cluster.Client().AppsV1().ReplicaSets(s.Namespace).UpdateStatus(n.ctx, s, metav1.UpdateOptions{})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
