package apiserver

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// LacksRule reports whether an API server has refused a request because no rule allows it. Admission also forbids
// requests: a ResourceQuota, a webhook, or the end of a namespace.
func LacksRule(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) &&
		!strings.Contains(err.Error(), "exceeded quota") && !strings.Contains(err.Error(), "admission webhook")
}
