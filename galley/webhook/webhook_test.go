package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/istiod-lite/istiod-lite/api/admission"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/webhook"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func newWebhook(r prometheus.Registerer) http.Handler {
	l := limits.Default()
	return webhook.New(webhook.Options{Gate: admission.NewGate(l, nil), Limits: l, Registerer: r})
}

// ask returns what the webhook answers to a request.
func ask(t testing.TB, h http.Handler, request map[string]any) *admissionv1.AdmissionResponse {
	t.Helper()
	request["uid"] = "u-1"
	body, err := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
	must.Succeed(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, webhook.Path, strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK || answer.Response.UID != "u-1" {
		t.Fatalf("%d, %s, %v", w.Code, w.Body, err)
	}
	return answer.Response
}

// object returns an object of a kind.
func object(apiVersion, kind, metadata, spec string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"o","namespace":"a"%s},"spec":%s}`,
		apiVersion, kind, metadata, spec))
}

const (
	networking = "networking.istio.io/v1"
	goodSpec   = `{"servers":[{"port":{"number":80,"name":"http","protocol":"HTTP"},"hosts":["*"]}]}`
	deleting   = `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
)

// TestReview says what may be stored, in words that begin as istiod's do.
func TestReview(t *testing.T) {
	good, bad := object(networking, "Gateway", "", goodSpec), object(networking, "Gateway", "", `{"servers":[]}`)
	const invalid = "configuration is invalid: "
	h := newWebhook(prometheus.NewRegistry())
	for what, c := range map[string]struct {
		request map[string]any
		message string // how it begins; empty: it is allowed
	}{
		"good":          {map[string]any{"operation": "CREATE", "object": good}, ""},
		"bad":           {map[string]any{"operation": "CREATE", "object": bad}, invalid + "spec.servers: "},
		"bad update":    {map[string]any{"operation": "UPDATE", "object": bad, "oldObject": good}, invalid},
		"bad dry run":   {map[string]any{"operation": "CREATE", "object": bad, "dryRun": true}, invalid},
		"status":        {map[string]any{"operation": "UPDATE", "object": bad, "subResource": "status"}, ""},
		"scale":         {map[string]any{"operation": "UPDATE", "object": bad, "subResource": "scale"}, invalid},
		"being deleted": {map[string]any{"operation": "UPDATE", "object": object(networking, "Gateway", deleting, `{}`)}, ""},
		"made deleted":  {map[string]any{"operation": "CREATE", "object": object(networking, "Gateway", deleting, `{}`)}, invalid},
		"delete":        {map[string]any{"operation": "DELETE", "oldObject": bad}, ""},
		"connect":       {map[string]any{"operation": "CONNECT", "object": bad}, ""},
		"unknown op":    {map[string]any{"operation": "X", "object": bad}, ""},
		"no op":         {map[string]any{"object": bad}, ""},
		"unknown kind": {map[string]any{"operation": "CREATE", "object": object(networking, "Foo", "", "{}")},
			"unrecognized type networking.istio.io/v1, Kind=Foo"},
		"no kind": {map[string]any{"operation": "CREATE", "object": json.RawMessage("{}")}, "unrecognized type /, Kind="},
		"a Service": {map[string]any{"operation": "CREATE", "object": object("v1", "Service", "", "{}")},
			"unrecognized type /v1, Kind=Service"},
		"newer version": {map[string]any{"operation": "CREATE", "object": object("networking.istio.io/v9", "Gateway", "", `{}`)}, invalid},
		"Gateway API":   {map[string]any{"operation": "CREATE", "object": object("gateway.networking.k8s.io/v1", "HTTPRoute", "", `{}`)}, ""},
		"unknown field": {map[string]any{"operation": "CREATE", "object": object(
			networking, "Gateway", "", `{"servers":[{"port":{"number":80,"name":"http","protocol":"HTTP"},"hosts":["a.com"]}],"server":[]}`)}, ""},
		"unknown, closed": {
			map[string]any{"operation": "CREATE", "object": object("security.istio.io/v1", "AuthorizationPolicy", "", `{"rule":[]}`)}, "",
		},
		"wrong type": {map[string]any{"operation": "CREATE", "object": object(networking, "Gateway", "", `{"servers":1}`)},
			"cannot decode configuration: spec.servers: "},
		"no object": {map[string]any{"operation": "CREATE"}, "cannot decode configuration: "},
		"null":      {map[string]any{"operation": "CREATE", "object": nil}, "cannot decode configuration: "},
		"text":      {map[string]any{"operation": "CREATE", "object": "x"}, "cannot decode configuration: the object: found string"},
		"deep": {map[string]any{
			"operation": "CREATE", "object": object(networking, "Gateway", "", strings.Repeat(`{"a":`, 5000)+"1"+strings.Repeat("}", 5000)),
		}, invalid + "too complex: "},
		"many at once": {map[string]any{
			"operation": "CREATE", "object": object(networking, "Gateway", "", `{"servers":[`+strings.Repeat(`{"hosts":["a b"]},`, 100)+`{}]}`),
		}, invalid + "21 errors occurred:\n\t* spec.servers[0]"},
		"another version": {map[string]any{"operation": "CREATE", "object": object("networking.istio.io/v1alpha3", "Gateway", "", goodSpec)}, ""},
	} {
		a := ask(t, h, c.request)
		message := ""
		if a.Result != nil {
			message = a.Result.Message
		}
		if a.Allowed != (c.message == "") || !strings.HasPrefix(message, c.message) || len(message) > 20_000 || a.Patch != nil {
			t.Errorf("%s: allowed %v, %.2000q: want %q", what, a.Allowed, message, c.message)
		}
	}
}

// TestWarnings lets an object in and says what is odd about it.
func TestWarnings(t *testing.T) {
	const route = `{"route":[{"destination":{"host":"b"}}]}`
	a := ask(t, newWebhook(prometheus.NewRegistry()),
		map[string]any{"operation": "CREATE", "object": object(networking, "VirtualService", "", `{"hosts":["a"],"http":[`+route+","+route+`]}`)})
	if !a.Allowed || len(a.Warnings) != 1 || !strings.HasPrefix(a.Warnings[0], "spec.http[1]: ") {
		t.Errorf("%v, %q", a.Allowed, a.Warnings)
	}
}

// TestTooComplex refuses what would cost too much, and says so.
func TestTooComplex(t *testing.T) {
	h := newWebhook(prometheus.NewRegistry())
	for what, spec := range map[string]string{
		"many routes": `{"hosts":["a"],"http":[` + strings.Repeat(`{},`, 100_000) + `{}]}`,
		"many values": `{"hosts":[` + strings.Repeat(`1,`, 700_000) + `1]}`,
		"deep":        `{"http":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`,
	} {
		a := ask(t, h, map[string]any{"operation": "CREATE", "object": object(networking, "VirtualService", "", spec)})
		if a.Allowed || !strings.Contains(a.Result.Message, "too complex") {
			t.Errorf("%s: allowed %v, %.1000q", what, a.Allowed, a.Result)
		}
	}
}

// TestMetrics counts by istiod's labels, of which there are a bounded number.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := newWebhook(reg)
	for i := range 3 {
		ask(t, h, map[string]any{"operation": "CREATE", "object": object(networking, "Gateway", "", goodSpec)})
		ask(t, h, map[string]any{"operation": "CREATE", "object": object(networking, "Gateway", "", "{}")})
		ask(t, h, map[string]any{"operation": "CREATE", "object": object(networking, fmt.Sprint("Foo", i), "", "{}"),
			"resource": map[string]string{"resource": fmt.Sprint("foos", i)}})
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, webhook.Path, strings.NewReader("x"))
	h.ServeHTTP(httptest.NewRecorder(), r)
	const want = `
# HELP galley_validation_failed Objects that were not found valid.
# TYPE galley_validation_failed counter
galley_validation_failed{group="networking.istio.io",reason="invalid_resource",resource="gateways",version="v1"} 3
galley_validation_failed{group="unknown",reason="unknown_type",resource="unknown",version="unknown"} 3
# HELP galley_validation_http_error Requests that were no reviews, or too many.
# TYPE galley_validation_http_error counter
galley_validation_http_error{status="415"} 1
# HELP galley_validation_passed Objects that were found valid.
# TYPE galley_validation_passed counter
galley_validation_passed{group="networking.istio.io",resource="gateways",version="v1"} 3
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// FuzzReview has the webhook judge any JSON. Whatever it says is bounded.
func FuzzReview(f *testing.F) {
	for _, spec := range []string{goodSpec, `{}`, `{"servers":[{}]}`} {
		f.Add([]byte(object(networking, "Gateway", "", spec)), "CREATE")
	}
	f.Add([]byte(object(networking, "VirtualService", "", `{"hosts":["a"],"http":[{"match":[{"uri":{"regex":"(x{100})"}}]}]}`)), "UPDATE")
	policy := object("security.istio.io/v1", "AuthorizationPolicy", "", `{"rules":[{"from":[{"source":{"principals":["*"]}}]}]}`)
	f.Add([]byte(policy), "CREATE")
	h := newWebhook(prometheus.NewRegistry())
	f.Fuzz(func(t *testing.T, object []byte, operation string) {
		if !json.Valid(object) {
			return
		}
		a := ask(t, h, map[string]any{"operation": operation, "object": json.RawMessage(object)})
		if a.Allowed == (a.Result != nil) || a.Result != nil && len(a.Result.Message) > 20_000 || len(a.Warnings) > 21 {
			t.Errorf("%+v", a)
		}
	})
}
