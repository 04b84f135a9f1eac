package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// Review checks one object that an API server is about to store, given as JSON. It returns all errors and warnings, and
// whether the kind is known here. An object with an error must be refused; see HasErrors.
//
// It reads only its arguments, and its cost is bounded: l.ReviewObject bounds the bytes, l.YAMLDepth the depth, and the
// number of values is bounded too, all before the object is decoded. Findings have an object and a field, but no file
// and line.
//
// The verdict is the same as the verdict of Istio's webhook, which agreement_test.go checks. A value that Istio accepts
// and that cannot be used here is a warning that says so, and an error in Object. A name may be missing if the API
// server generates it. A field of the spec that is unknown here is a warning, because the API server knows it: it would
// have dropped it otherwise. An unknown field beside the spec is an error, as in Istio's webhook. The API server itself
// checks the rules of the CustomResourceDefinitions.
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
