package leader

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// refusal is the last request about Leases that the API server has forbidden, until such requests are allowed again.
type refusal struct {
	effect    string // what this process does not do because of it
	namespace string // of the Leases

	mu         sync.Mutex
	verb, name string // of the request; empty if nothing is forbidden
	text       string // of the error
}

// note takes the result of a request. It reports whether the request is forbidden and the one before was not. An error
// of another kind says nothing about permissions.
func (r *refusal) note(verb, name string, err error) bool {
	if err != nil && !apierrors.IsForbidden(err) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.verb
	if r.verb, r.name, r.text = "", "", ""; err != nil {
		r.verb, r.name, r.text = verb, name, err.Error()
	}
	return r.verb != "" && r.verb != was
}

// Findings returns what is forbidden, and the rule that allows it.
func (r *refusal) Findings() []diag.Diagnostic {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.verb == "" {
		return nil
	}
	return []diag.Diagnostic{{
		Severity: diag.Warning, Code: "LeaseForbidden", Object: "Lease " + r.namespace + "/" + r.name,
		Message: fmt.Sprintf("%s, because the API server forbids to %s the Lease: %s", r.effect, r.verb, r.text),
		Fix: fmt.Sprintf("add a rule with apiGroups [coordination.k8s.io], resources [leases] and verbs [%s] to a Role in namespace %s "+
			"that is bound to the ServiceAccount of this server; it is tried again", r.verb, r.namespace),
	}}
}
