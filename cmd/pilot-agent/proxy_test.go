package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestRequest runs the commands that istioctl and hooks run in pods.
func TestRequest(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/drain":
		case r.URL.String() == "/config_dump?include_eds":
			_, _ = w.Write([]byte("dumped"))
		case r.URL.Path == "/ready":
			if asked++; asked < 3 {
				http.Error(w, "not yet", http.StatusServiceUnavailable)
			}
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	port := "--debug-port=" + server.URL[strings.LastIndexByte(server.URL, ':')+1:]
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"request", port, "GET", "config_dump?include_eds"}, 0, "dumped", ""},
		{[]string{"request", port, "POST", "drain"}, 0, "", ""},
		{[]string{"request", port, "GET", "/nothing"}, 1, "", "404 Not Found"},
		{[]string{"wait", "--url", server.URL + "/ready", "--periodMillis", "1", "--requestTimeoutMillis", "60000"}, 0, "", ""},
		{[]string{"wait", "--url", server.URL + "/never", "--periodMillis", "1", "--timeoutSeconds", "1"}, 1, "", "not ready after 1 s"},
		{[]string{"wait", "--periodMillis", "0"}, 1, "", "above 0"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), c.args, nil, &out, &errs); code != c.code || out.String() != c.out ||
			!strings.Contains(errs.String(), c.errs) {
			t.Errorf("%v: exit %d, %s%s", c.args, code, out.String(), errs.String())
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times, want 3", asked)
	}
}

// TestProxyFlags checks that flags of Istio without effect, and unknown flags, are logged, and that wrong flags end
// the agent.
func TestProxyFlags(t *testing.T) {
	var out, errs bytes.Buffer
	args := []string{"proxy", "sidecar", "--stsPort=15463", "--templateFile", "x.json", "--profiling", "--colour=red", "--log_as_json"}
	if code := run(t.Context(), args, nil, &out, &errs); code != 1 || !strings.Contains(errs.String(), "set POD_NAMESPACE") {
		t.Errorf("exit %d, %s", code, errs.String())
	}
	for _, want := range []string{"--stsPort", "--templateFile", "--profiling", "--colour"} {
		if !strings.Contains(out.String(), strconv.Quote(want)) {
			t.Errorf("%s is not named: %s", want, out.String())
		}
	}
	for args, want := range map[string]string{
		"proxy waypoint":                    `role "waypoint"`,
		"proxy --log_output_level=x:y":      "--log_output_level",
		"proxy --concurrency=x":             "concurrency",
		"proxy --discovery=localhost:15012": "--discovery needs --stock",
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), nil, &out, &errs); code != 1 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit %d, %s", args, code, errs.String())
		}
	}
}

// TestStock checks that flags replace the environment of a pod, and that the environment has precedence.
func TestStock(t *testing.T) {
	f := &proxyFlags{name: "web.shop", discovery: "localhost:15012", admin: 1, status: 2}
	environ, err := f.stock([]string{"POD_NAMESPACE=other", "PROXY_CONFIG={statusPort: 3, concurrency: 4}"})
	must.Succeed(t, err)
	for _, want := range []string{"POD_NAME=web", "SERVICE_ACCOUNT=web", "ISTIO_META_INTERCEPTION_MODE=NONE"} {
		if !slices.Contains(environ, want) {
			t.Errorf("no %s in %q", want, environ)
		}
	}
	text := strings.Join(environ, "\n")
	last := environ[len(environ)-1] // which is used
	if !strings.Contains(text, "POD_NAMESPACE=shop\n") ||
		strings.Index(text, "POD_NAMESPACE=shop") > strings.Index(text, "POD_NAMESPACE=other") ||
		!strings.HasSuffix(last, `"concurrency":4,"discoveryAddress":"localhost:15012","proxyAdminPort":1,"statusPort":2}`) {
		t.Errorf("environment %s", text)
	}
}
