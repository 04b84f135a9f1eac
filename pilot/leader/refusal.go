package leader

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// refusal is the last request for a Lease, if the API server has forbidden it.
type refusal struct {
	effect    string // what this process does not do meanwhile
	namespace string // namespace of the Leases

	mu         sync.Mutex
	verb, name string // of the request; empty if it was allowed
	text       string // text of the error
}

// note records the result of a request. It reports whether the request was forbidden and the last one with its verb was
// not. Errors of other kinds say nothing about permissions, and are ignored.
func (r *refusal) note(verb, name string, err error) bool {
	if err != nil && !apierrors.IsForbidden(err) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	previous := r.verb
	if r.verb, r.name, r.text = "", "", ""; err != nil {
		r.verb, r.name, r.text = verb, name, err.Error()
	}
	return r.verb != "" && r.verb != previous
}

// Findings returns a finding with the rule that allows the request, if it is forbidden.
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
