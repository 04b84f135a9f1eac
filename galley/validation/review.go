package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// Review judges one object that an API server is about to store, given as JSON. It returns all errors and warnings, and
// whether the kind is known here at all. An object with an error has to be refused; see HasErrors.
//
// It reads nothing but its arguments, and its cost is bounded: l.ReviewObject bounds the bytes, l.YAMLDepth the depth,
// and the number of values is bounded too, all before the object is looked at. Findings have an object and a field, but
// no file and line.
//
// The verdict is that of Istio's webhook; agreement_test.go holds it to that. What Istio takes and cannot be used here
// is a warning that says so: Object has an error there. A name may be missing where it is still to be generated. A
// field of the spec that is unknown here is a warning: it is known to the API server, or it would have been dropped. A
// field beside the spec is an error, as in Istio's webhook. The rules of the CustomResourceDefinitions are the API
// server's, and not repeated.
func Review(l limits.Limits, gvk schema.GroupVersionKind, data []byte) (findings []diag.Diagnostic, known bool) {
	kind := kinds.Find(gvk.GroupVersion().String(), gvk.Kind)
	if kind == nil {
		return nil, false
	}
	if len(data) > l.ReviewObject {
		return []diag.Diagnostic{{
			Severity: diag.Error, Code: "Limit", Object: kind.Name, Fix: "split the object",
			Message: fmt.Sprintf("the object has %d bytes, more than %d", len(data), l.ReviewObject),
		}}, true
	}
	d := &decoder{limits: l, stored: true, review: true}
	return d.json(kind, data).Findings, true
}
