package ctrlz

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// levels is a fake of Scopes.
type levels []Scope

func (l *levels) List() []Scope { return *l }

func (l *levels) Set(s Scope) error {
	if s.OutputLevel == "loud" {
		return errors.New(`"loud" is none of the levels`)
	}
	for i := range *l {
		if (*l)[i].Name == s.Name {
			(*l)[i] = s
		}
	}
	return nil
}

func ask(t *testing.T, h http.Handler, method, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func serve(scopes Scopes) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "one"}, func() float64 { return 1 }))
	return Handler(Options{
		Scopes: scopes, Args: []string{"pilot-discovery", "discovery"}, Version: "1.2.3", Metrics: reg,
		Environ: []string{"B=2", "A=x=y", "GIT_PASSWORD=S3CRET", "OTEL_EXPORTER_OTLP_HEADERS=key=S3CRET", "API_KEY=S3CRET", "EMPTY_TOKEN="},
	})
}

// TestTopics checks that every linked topic is JSON, and that none shows a secret of the environment.
func TestTopics(t *testing.T) {
	h := serve(&levels{{Name: "ads", OutputLevel: "info"}})
	_, index := ask(t, h, http.MethodGet, "/", "")
	for name, want := range map[string]string{
		"arg": `["pilot-discovery","discovery"]`,
		"env": `{"name":"A","value":"x=y"},{"name":"API_KEY","value":"[redacted]"},{"name":"B","value":"2"},{"name":"EMPTY_TOKEN","value":""}`,
		"mem": `"HeapAlloc":`, "metric": `one 1\n`, "proc": `"goroutines":`, "scope": `"name":"ads","description":"","output_level":"info"`,
		"signal": `[`, "version": `"version":"1.2.3"`,
	} {
		code, body := ask(t, h, http.MethodGet, "/"+name+"j/", "")
		if code != http.StatusOK || !json.Valid([]byte(body)) || !strings.Contains(body, want) || strings.Contains(body, "S3CRET") ||
			!strings.Contains(index, `href="/`+name+`j/"`) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	var p process
	if _, body := ask(t, h, http.MethodGet, "/procj/", ""); json.Unmarshal([]byte(body), &p) != nil || p.PID != os.Getpid() || p.Threads == 0 {
		t.Errorf("%+v", p)
	}
	for _, path := range []string{"/nothing", "/scopej/nothing", "/scopej/ads/x"} {
		if code, _ := ask(t, h, http.MethodGet, path, ""); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
	if code, _ := ask(t, h, http.MethodPut, "/memj/forcecollection", ""); code != http.StatusAccepted {
		t.Errorf("collection: %d", code)
	}
}

// TestLevels reads and sets levels as istioctl does, and checks that a wrong request changes nothing.
func TestLevels(t *testing.T) {
	l := levels{{"ads", "streams", "info", "none", false}, {"kube", "API servers", "warn", "none", true}}
	h := serve(&l)
	for _, c := range []struct {
		method, path, body string
		code               int
		answer             string
	}{
		{http.MethodGet, "/scopej/ads", "", 200,
			`{"name":"ads","description":"streams","output_level":"info","stack_trace_level":"none","log_callers":false}`},
		{http.MethodPut, "/scopej/ads", `{"name":"ads","output_level":"debug","stack_trace_level":"error"}`, 202, ""},
		{http.MethodPut, "/scopej/kube", `{"output_level":"info"}`, 202, ""},
		{http.MethodPut, "/scopej/kube", `{"output_level":"loud"}`, 400, `"loud" is none of the levels`},
		{http.MethodPut, "/scopej/kube", `debug`, 400, "not a scope in JSON"},
		{http.MethodPut, "/scopej/nothing", `{"output_level":"info"}`, 404, ""},
	} {
		if code, body := ask(t, h, c.method, c.path, c.body); code != c.code || !strings.Contains(body, c.answer) {
			t.Errorf("%s %s: %d %s", c.method, c.path, code, body)
		}
	}
	if want := (levels{{"ads", "streams", "debug", "error", false}, {"kube", "API servers", "info", "none", true}}); !slices.Equal(l, want) {
		t.Errorf("%v", l)
	}
}
