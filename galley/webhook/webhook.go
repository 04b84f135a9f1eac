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

// Path is where the webhook answers, and below it.
const Path = "/validate"

// Invalid is how the message begins of an answer that refuses an object for what it means.
const Invalid = "configuration is invalid"

// Options of the webhook.
type Options struct {
	Gate       *admission.Gate
	Limits     limits.Limits
	Registerer prometheus.Registerer
}

// New returns what answers AdmissionReviews.
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
	if kind.Group == kinds.KubeGateway.Group { // whose CustomResourceDefinitions say all there is to say
		w.metrics.passed.WithLabelValues(gvk.Group, gvk.Version, kind.Plural).Inc()
		return admission.Allow()
	}
	if r.Operation == admissionv1.Update && object.Metadata.DeletionTimestamp != nil {
		return admission.Allow()
	}
	findings, _ := validation.Review(w.limits, gvk, r.Object.Raw)
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

// malformed returns what is wrong with JSON that is no object of an API server.
func malformed(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Sprintf("%s: found %s where an object of an API server has something else", cmp.Or(wrong.Field, "the object"), wrong.Value)
	}
	return clip(err.Error())
}

// find returns the kind that an object is of, one of Istio's or of the Gateway API, or nil. All versions of a kind have
// one schema, a version that is not known here too: the API server says which there are.
func find(gvk schema.GroupVersionKind) *kinds.Kind {
	for _, k := range kinds.All() {
		if k.Group == gvk.Group && k.Name == gvk.Kind && (k.Istio || k.Group == kinds.KubeGateway.Group) {
			return k
		}
	}
	return nil
}

// most is how many errors, and how many warnings, an answer holds.
const most = 20

// split returns the texts of errors and of warnings, a bounded number of each.
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

// line returns a finding as the author of the object reads it, who knows which object it is.
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

// clip shortens what is quoted from an object.
func clip(s string) string {
	const longest = 512
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}

// together returns errors as one text.
func together(faults []string) string {
	if len(faults) == 1 {
		return faults[0]
	}
	return fmt.Sprintf("%d errors occurred:\n\t* %s\n", len(faults), strings.Join(faults, "\n\t* "))
}

// undecoded reports whether one of the errors is about the form of an object, so that its meaning is not known.
func undecoded(findings []diag.Diagnostic) bool {
	return slices.ContainsFunc(findings, func(d diag.Diagnostic) bool {
		return d.Severity == diag.Error && slices.Contains([]string{"UnknownField", "WrongType", "Syntax", "DuplicateKey"}, d.Code)
	})
}

// unknown is the value of labels that what is reviewed does not have. Their number stays bounded, whatever is sent.
const unknown = "unknown"

// metrics are istiod's.
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
