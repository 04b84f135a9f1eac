package leader

import (
	"errors"
	"fmt"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/diag"
)

// refusal is the last request for a Lease, if the API server has refused it.
type refusal struct {
	effect    string // what this process does not do meanwhile
	namespace string // namespace of the Leases

	mu         sync.Mutex
	verb, name string // of the request; empty if it was allowed
	err        error
}

// note records the result of a request. It reports whether the request was refused and the last one with its verb was
// not. Other errors, such as those of an outage, do not concern the request, and are ignored.
func (r *refusal) note(verb, name string, err error) bool {
	if err != nil && !refused(verb, err) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && verb == "get" && r.verb != verb {
		return false // it does not show that writes are allowed
	}
	previous := r.verb
	if r.verb, r.name, r.err = "", "", nil; err != nil {
		r.verb, r.name, r.err = verb, name, err
	}
	return r.verb != "" && r.verb != previous
}

// refused reports whether the API server would refuse the same request again. It would not if the Lease was changed or
// deleted in between, or if there were too many requests.
func refused(verb string, err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && !(verb != "create" && apierrors.IsNotFound(err))
}

// Findings returns a finding with the rule that allows the request, if it is refused.
func (r *refusal) Findings() []diag.Diagnostic {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.verb == "" {
		return nil
	}
	d := diag.Diagnostic{
		Severity: diag.Warning, Code: "LeaseForbidden", Object: "Lease " + r.namespace + "/" + r.name,
		Message: fmt.Sprintf("%s, because the API server refuses to %s the Lease: %v", r.effect, r.verb, r.err),
		Fix:     "correct what the error names; it is tried again",
	}
	if apiserver.LacksRule(r.err) {
		d.Fix = fmt.Sprintf("add a rule with apiGroups [coordination.k8s.io], resources [leases] and verbs [%s] to a Role in namespace %s "+
			"that is bound to the ServiceAccount of this server; it is tried again", r.verb, r.namespace)
	}
	return []diag.Diagnostic{d}
}
