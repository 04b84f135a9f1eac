package webhook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/admission"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/galley/validation"
)

// Path is the prefix of the paths at which the webhook answers.
const Path = "/validate"

// Invalid is the beginning of the message if an object is refused for its meaning.
const Invalid = "configuration is invalid"

// Options of the webhook.
type Options struct {
	Gate       *admission.Gate
	Limits     limits.Limits
	Registerer prometheus.Registerer
}

// New returns the handler of AdmissionReviews.
func New(o Options) http.Handler {
	w := &webhook{limits: o.Limits, metrics: newMetrics(o.Registerer)}
	return o.Gate.Handler(w.review, func(status int) { w.metrics.refused.WithLabelValues(strconv.Itoa(status)).Inc() })
}

type webhook struct {
	limits  limits.Limits
	metrics *metrics
}

// review answers one request.
func (w *webhook) review(_ *http.Request, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	if r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		w.metrics.failed.WithLabelValues(unknown, unknown, unknown, "unsupported_operation").Inc()
		return admission.Allow()
	}
	if r.SubResource == "status" {
		return admission.Allow()
	}
	var object struct {
		metav1.TypeMeta
		Metadata struct {
			DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(r.Object.Raw, &object); err != nil {
		w.metrics.failed.WithLabelValues(unknown, unknown, unknown, "yaml_decode_error").Inc()
		return admission.Deny("cannot decode configuration: " + malformed(err))
	}
	gvk := object.GroupVersionKind()
	kind := find(gvk)
	if kind == nil {
		w.metrics.failed.WithLabelValues(unknown, unknown, unknown, "unknown_type").Inc()
		return admission.Deny("unrecognized type " + clip(gvk.String()))
	}
	gvk.Version = kind.Versions[0]
	if kind.IsGatewayAPI() { // its CustomResourceDefinitions check everything
		w.metrics.passed.WithLabelValues(gvk.Group, gvk.Version, kind.Plural).Inc()
		return admission.Allow()
	}
	if r.Operation == admissionv1.Update && object.Metadata.DeletionTimestamp != nil {
		return admission.Allow()
	}
	findings, _ := validation.Review(w.limits, gvk, r.Object.Raw)
	return w.answer(gvk, kind, findings)
}

// answer returns the answer to a review with findings.
func (w *webhook) answer(gvk schema.GroupVersionKind, kind *kinds.Kind, findings []diag.Diagnostic) *admissionv1.AdmissionResponse {
	faults, warnings := split(findings)
	if len(faults) == 0 {
		w.metrics.passed.WithLabelValues(gvk.Group, gvk.Version, kind.Plural).Inc()
		answer := admission.Allow()
		answer.Warnings = warnings
		return answer
	}
	text, reason := Invalid+": ", "invalid_resource"
	if undecoded(findings) {
		text, reason = "cannot decode configuration: ", "crd_conversion_error"
	}
	w.metrics.failed.WithLabelValues(gvk.Group, gvk.Version, kind.Plural, reason).Inc()
	answer := admission.Deny(text + together(faults))
	answer.Warnings = warnings
	return answer
}

// malformed returns the reason why JSON is not an object of an API server.
func malformed(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Sprintf("%s: found %s where an object of an API server has something else", cmp.Or(wrong.Field, "the object"), wrong.Value)
	}
	return clip(err.Error())
}

// find returns the kind of an object, of Istio's or of the Gateway API, or nil. All versions of a kind share one
// schema, including versions that are unknown here: the API server decides which versions exist.
func find(gvk schema.GroupVersionKind) *kinds.Kind {
	for _, k := range kinds.All() {
		if k.Group == gvk.Group && k.Name == gvk.Kind && (k.Istio || k.IsGatewayAPI()) {
			return k
		}
	}
	return nil
}

// most is the largest number of errors, and of warnings, in an answer.
const most = 20

// split returns the texts of the errors and of the warnings, at most most of each.
func split(findings []diag.Diagnostic) (faults, warnings []string) {
	more := map[diag.Severity]int{}
	for _, d := range findings {
		list := &warnings
		if d.Severity == diag.Error {
			list = &faults
		}
		if len(*list) == most {
			more[d.Severity]++
			continue
		}
		*list = append(*list, clip(line(d)))
	}
	if n := more[diag.Error]; n > 0 {
		faults = append(faults, fmt.Sprintf("and %d more", n))
	}
	if n := more[diag.Warning]; n > 0 {
		warnings = append(warnings, fmt.Sprintf("and %d more", n))
	}
	return faults, warnings
}

// line returns a finding without the name of the object, which its author knows.
func line(d diag.Diagnostic) string {
	text := d.Message
	if d.Code == "Limit" {
		text = "too complex: " + text
	}
	if d.Field != "" {
		text = d.Field + ": " + text
	}
	if d.Fix != "" {
		text += "; " + d.Fix
	}
	return text
}

// clip shortens a text that is quoted from an object.
func clip(s string) string {
	const longest = 512
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}

// together joins errors into one text.
func together(faults []string) string {
	if len(faults) == 1 {
		return faults[0]
	}
	return fmt.Sprintf("%d errors occurred:\n\t* %s\n", len(faults), strings.Join(faults, "\n\t* "))
}

// undecoded reports whether an error is about the form of an object, so that its meaning is unknown.
func undecoded(findings []diag.Diagnostic) bool {
	return slices.ContainsFunc(findings, func(d diag.Diagnostic) bool {
		return d.Severity == diag.Error && slices.Contains([]string{"UnknownField", "WrongType", "Syntax", "DuplicateKey"}, d.Code)
	})
}

// unknown is the value of metric labels for unknown kinds and operations, so that the number of label values is
// bounded.
const unknown = "unknown"

// metrics have the same names as istiod's.
type metrics struct{ passed, failed, refused *prometheus.CounterVec }

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "galley_validation_" + name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	return &metrics{
		passed:  counter("passed", "Objects that were found valid.", "group", "version", "resource"),
		failed:  counter("failed", "Objects that were not found valid.", "group", "version", "resource", "reason"),
		refused: counter("http_error", "Requests that were no reviews, or too many.", "status"),
	}
}
