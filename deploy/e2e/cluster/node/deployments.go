package node

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// hashLabel identifies the template of a pod.
const hashLabel = "pod-template-hash"

// syncDeployments creates the pods of Deployments. Pods of an earlier template are deleted when all pods of the new one
// are ready.
func (n *Node) syncDeployments() error {
	all, err := n.factory.Apps().V1().Deployments().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	owned, err := n.owned()
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range all {
		if d.DeletionTimestamp == nil {
			errs = append(errs, n.syncDeployment(d, owned[d.UID]))
		}
	}
	return errors.Join(errs...)
}

func (n *Node) syncDeployment(d *appsv1.Deployment, owned []*corev1.Pod) error {
	template, err := json.Marshal(d.Spec.Template)
	if err != nil {
		return err
	}
	hash := fmt.Sprintf("%08x", uint32(xxhash.Sum64(template)))
	want := 1
	if d.Spec.Replicas != nil {
		want = int(*d.Spec.Replicas)
	}
	owner := metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	have, ready := map[string]*corev1.Pod{}, 0
	for _, p := range owned {
		have[p.Name] = p
	}
	keep := map[string]bool{}
	var errs []error
	for i := range want {
		p := podOf(&d.Spec.Template, d.Namespace, d.Name+"-"+hash, i, owner)
		p.Labels[hashLabel] = hash
		keep[p.Name] = true
		if now := have[p.Name]; now != nil {
			if isReady(now) {
				ready++
			}
			continue
		}
		errs = append(errs, n.create(p))
	}
	for _, p := range owned {
		if !keep[p.Name] && ready == want && p.DeletionTimestamp == nil {
			errs = append(errs, n.end(p))
		}
	}
	status := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: int32(want), UpdatedReplicas: int32(want),
		ReadyReplicas: int32(ready), AvailableReplicas: int32(ready)}
	if now := d.Status; now.ObservedGeneration != status.ObservedGeneration || now.ReadyReplicas != status.ReadyReplicas ||
		now.Replicas != status.Replicas {
		d = d.DeepCopy()
		d.Status = status
		_, err := n.o.Cluster.Client().AppsV1().Deployments(d.Namespace).UpdateStatus(n.ctx, d, metav1.UpdateOptions{})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
