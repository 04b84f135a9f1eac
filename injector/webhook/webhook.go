package webhook

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/istiod-lite/istiod-lite/api/admission"
	"github.com/istiod-lite/istiod-lite/injector"
)

// Path is the prefix of the paths at which the webhook answers.
const Path = "/inject"

// Options of the webhook.
type Options struct {
	Gate       *admission.Gate
	Injector   *injector.Injector
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// New returns the handler of AdmissionReviews.
func New(o Options) http.Handler {
	w := &webhook{o, newMetrics(o.Registerer)}
	return o.Gate.Handler(w.review, func(int) {
		w.metrics.requests.Inc()
		w.metrics.failed.Inc()
	})
}

type webhook struct {
	o       Options
	metrics *metrics
}

// review answers one request.
func (w *webhook) review(r *http.Request, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	began := time.Now()
	defer func() { w.metrics.seconds.Observe(time.Since(began).Seconds()) }()
	w.metrics.requests.Inc()
	answer, err := w.inject(r, request)
	if err != nil {
		w.metrics.failed.Inc()
		w.o.Logger.Warn("failed to inject Pod", "ns", request.Namespace, "name", request.Name, "err", err)
		return admission.Deny(err.Error())
	}
	return answer
}

func (w *webhook) inject(r *http.Request, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if request.Kind.Kind != "" && request.Kind.Kind != "Pod" {
		return nil, fmt.Errorf("a proxy is injected into pods, and not into a %s: let the rules of the webhook name pods alone",
			request.Kind.Kind)
	}
	if len(request.Object.Raw) == 0 {
		return nil, errors.New("the request has no object")
	}
	in := injector.Request{Pod: request.Object.Raw, Namespace: request.Namespace}
	var err error
	if in.Cluster, in.Network, err = place(r.URL.EscapedPath()); err != nil {
		return nil, err
	}
	out, err := w.o.Injector.Inject(r.Context(), in)
	if err != nil {
		return nil, err
	}
	answer := admission.Allow()
	answer.Warnings = out.Warnings
	if out.Skipped != "" {
		w.metrics.skipped.Inc()
		return answer, nil
	}
	w.metrics.succeeded.Inc()
	kind := admissionv1.PatchTypeJSONPatch
	answer.Patch, answer.PatchType = out.Patch, &kind
	return answer, nil
}

// place returns the cluster and the network in a path; each is empty if the path has none. Names and values alternate.
// A slash in a value is written %2F or --slash--.
func place(path string) (cluster, network string, err error) {
	rest := strings.Trim(strings.TrimPrefix(path, Path), "/")
	if rest == "" {
		return "", "", nil
	}
	parts := strings.Split(rest, "/")
	if len(parts)%2 != 0 {
		return "", "", fmt.Errorf("the path %s has a name without a value: write %s/cluster/NAME/net/NAME", path, Path)
	}
	for i := 0; i < len(parts); i += 2 {
		value, err := url.PathUnescape(parts[i+1])
		if err != nil {
			return "", "", fmt.Errorf("the path %s: %w", path, err)
		}
		value = strings.ReplaceAll(value, "--slash--", "/")
		switch parts[i] {
		case "cluster":
			cluster = value
		case "net":
			network = value
		default:
			return "", "", fmt.Errorf("the path %s names %q: only cluster and net are known", path, parts[i])
		}
	}
	return cluster, network, nil
}
