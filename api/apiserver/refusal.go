package apiserver

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// LacksRule reports whether an API server has refused a request because no rule allows it. Admission also forbids
// requests: a ResourceQuota, a webhook, a policy, or the end of a namespace.
func LacksRule(err error) bool {
	if !apierrors.IsForbidden(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false
	}
	return !slices.ContainsFunc([]string{"quota: ", "admission webhook", "ValidatingAdmissionPolicy"}, func(text string) bool {
		return strings.Contains(err.Error(), text)
	})
}
