package webhook

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/istiod-lite/istiod-lite/api/admission"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/injector"
)

const config = `
policy: enabled
templates:
  sidecar: |
    spec:
      containers:
      - name: istio-proxy
        image: x
`

func post(t *testing.T, h http.Handler, path, version, kind, pod string) (int, *admissionv1.AdmissionResponse) {
	t.Helper()
	body := `{"apiVersion":"admission.k8s.io/` + version + `","kind":"AdmissionReview",` +
		`"request":{"uid":"u","operation":"CREATE","namespace":"shop","kind":{"version":"v1","kind":"` + kind + `"},"object":` + pod + `}}`
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var review admissionv1.AdmissionReview
	if w.Code == http.StatusOK {
		must.Succeed(t, json.Unmarshal(w.Body.Bytes(), &review))
		if review.APIVersion != "admission.k8s.io/"+version || review.Response.UID != "u" {
			t.Errorf("the answer is of %s %s", review.APIVersion, review.Response.UID)
		}
	}
	return w.Code, review.Response
}

func TestReviews(t *testing.T) {
	m := mesh.Default()
	i := injector.New(injector.Options{World: injector.MeshOnly{Config: m}, Logger: slog.New(slog.DiscardHandler), Time: time.Minute})
	metrics := prometheus.NewRegistry()
	h := New(Options{Gate: admission.NewGate(limits.Default(), nil), Injector: i, Registerer: metrics, Logger: slog.New(slog.DiscardHandler)})
	const pod = `{"metadata":{"name":"a","annotations":{"proxy.istio.io/config":"nope: 1"}},` +
		`"spec":{"containers":[{"name":"app","image":"x"}]}}`

	if _, r := post(t, h, "/inject", "v1", "Pod", pod); r.Allowed || !strings.Contains(r.Result.Message, "there are no templates") {
		t.Errorf("without templates: %+v", r)
	}
	c, findings := injector.Parse("x", injector.Texts{Config: config, Values: "{}"}, injector.Functions{})
	if c == nil {
		t.Fatal(findings)
	}
	i.Set(c)
	for path, want := range map[string]string{
		"/inject":  ``,
		"/inject/": ``,
		"/inject/cluster/east/net/n1": `"env":[{"name":"ISTIO_META_CLUSTER_ID","value":"east"},` +
			`{"name":"ISTIO_META_NETWORK","value":"n1"}]`,
		"/inject/net/a--slash--b":            `"env":[{"name":"ISTIO_META_NETWORK","value":"a/b"}]`,
		"/inject/cluster/a%2Fb%20c":          `"env":[{"name":"ISTIO_META_CLUSTER_ID","value":"a/b c"}]`,
		"/inject/cluster":                    `refused: the path /inject/cluster has a name without a value`,
		"/inject/clusters/x":                 `refused: the path /inject/clusters/x names "clusters"`,
		"/inject/cluster/east/net/n1/more/x": `names "more"`,
	} {
		for _, version := range []string{"v1", "v1beta1"} {
			code, r := post(t, h, path, version, "Pod", pod)
			if code != http.StatusOK {
				t.Fatalf("%s: status %d", path, code)
			}
			got := "refused: "
			if r.Allowed {
				p, err := jsonpatch.DecodePatch(r.Patch)
				must.Succeed(t, err)
				out, err := p.Apply([]byte(pod))
				if err != nil || *r.PatchType != admissionv1.PatchTypeJSONPatch || !bytes.Contains(out, []byte(`"istio-proxy"`)) {
					t.Fatalf("%s: %s, %v", path, out, err)
				}
				got = string(out)
				if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], `there is no field "nope"`) {
					t.Errorf("%s: the warnings are %q", path, r.Warnings)
				}
			} else {
				got += r.Result.Message
			}
			if !strings.Contains(got, want) || (want == "" && strings.Contains(got, "ISTIO_META")) {
				t.Errorf("%s: got %s, want %s", path, got, want)
			}
		}
	}
	if _, r := post(t, h, "/inject", "v1", "Pod",
		`{"metadata":{"labels":{"sidecar.istio.io/inject":"false"}}}`); !r.Allowed || r.Patch != nil {
		t.Errorf("a pod that opts out: %+v", r)
	}
	if _, r := post(t, h, "/inject", "v1", "Deployment", pod); r.Allowed {
		t.Error("a Deployment is taken for a pod")
	}
	if code, _ := post(t, h, "/inject", "v2", "Pod", pod); code != http.StatusBadRequest {
		t.Errorf("a review of a version that there is not: %d", code)
	}
	want := `
# HELP sidecar_injection_failure_total Pods that were refused, and requests that were no reviews.
# TYPE sidecar_injection_failure_total counter
sidecar_injection_failure_total 9
# HELP sidecar_injection_requests_total Pods that the API server has asked about.
# TYPE sidecar_injection_requests_total counter
sidecar_injection_requests_total 20
# HELP sidecar_injection_skip_total Pods that stay as they are.
# TYPE sidecar_injection_skip_total counter
sidecar_injection_skip_total 1
# HELP sidecar_injection_success_total Pods that got a proxy.
# TYPE sidecar_injection_success_total counter
sidecar_injection_success_total 10
`
	names := []string{"requests", "success", "failure", "skip"}
	for i := range names {
		names[i] = "sidecar_injection_" + names[i] + "_total"
	}
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}
