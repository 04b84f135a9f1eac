package node

import (
	"errors"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// syncJobs runs Jobs with one completion: one pod after the other, until one succeeds or too many have failed.
func (n *Node) syncJobs() error {
	all, err := n.factory.Batch().V1().Jobs().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	owned, err := n.owned()
	if err != nil {
		return err
	}
	var errs []error
	for _, j := range all {
		if j.DeletionTimestamp == nil && !finished(j) {
			errs = append(errs, n.syncJob(j, owned[j.UID]))
		}
	}
	return errors.Join(errs...)
}

// finished reports whether a Job has ended.
func finished(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

func (n *Node) syncJob(j *batchv1.Job, owned []*corev1.Pod) error {
	active, failed, succeeded := int32(0), int32(0), int32(0)
	for _, p := range owned {
		switch p.Status.Phase {
		case corev1.PodSucceeded:
			succeeded++
		case corev1.PodFailed:
			failed++
		default:
			active++
		}
	}
	limit := ptr.Deref(j.Spec.BackoffLimit, 6)
	if active == 0 && succeeded == 0 && failed <= limit {
		owner := metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))
		if err := n.create(podOf(&j.Spec.Template, j.Namespace, j.Name, len(owned), owner)); err != nil {
			return err
		}
		active = 1
	}
	now := metav1.Now()
	status := batchv1.JobStatus{StartTime: j.Status.StartTime, Active: active, Failed: failed, Succeeded: succeeded, Ready: ptr.To(int32(0)),
		UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}, Conditions: slices.Clone(j.Status.Conditions)}
	if status.StartTime == nil {
		status.StartTime = &now
	}
	// Each condition of the end follows one that announces it.
	end := func(types ...batchv1.JobConditionType) {
		for _, t := range types {
			status.Conditions = append(status.Conditions, batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: now,
				LastProbeTime: now})
		}
	}
	switch {
	case succeeded > 0:
		end(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
		status.CompletionTime = &now
	case failed > limit:
		end(batchv1.JobFailureTarget, batchv1.JobFailed)
	case j.Status.StartTime != nil && j.Status.Active == active && j.Status.Failed == failed:
		return nil
	}
	j = j.DeepCopy()
	j.Status = status
	_, err := n.o.Cluster.Client().BatchV1().Jobs(j.Namespace).UpdateStatus(n.ctx, j, metav1.UpdateOptions{})
	return err
}
