package apiserver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestAnswers: a success is the answer, whatever its code, and any other is an error that has the server's message. No
// redirect is followed, and no more of an answer is read than it may have.
func TestAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/base/reviews":
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"status": {"by": %q}}`, r.Method+" "+r.Header.Get("Content-Type"))
		case "/base/denied":
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind": "Status", "message": "you may not"}`))
		case "/base/gone":
			w.WriteHeader(http.StatusNotFound)
		case "/base/elsewhere":
			http.Redirect(w, r, "/base/version", http.StatusTemporaryRedirect)
		case "/base/version":
			_, _ = w.Write([]byte("v1"))
		case "/base/endless":
			_, _ = w.Write([]byte(strings.Repeat("x", 2<<20)))
		}
	}))
	defer server.Close()
	c, err := apiserver.New(&rest.Config{Host: server.URL + "/base"})
	must.Succeed(t, err)
	for path, want := range map[string]string{
		"/version": "v1", "/denied": "/denied answers 403: you may not",
		"/gone": "/gone answers 404: Not Found", "/elsewhere": "/elsewhere answers 307: Temporary Redirect",
	} {
		text, err := c.Get(t.Context(), path)
		if got := string(text); err == nil && got != want || err != nil && err.Error() != want {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if text, err := c.Get(t.Context(), "/endless"); len(text) != 1<<20 || err != nil {
		t.Errorf("%d bytes are read, %v", len(text), err)
	}
	var review struct {
		Spec   string
		Status struct{ By string }
	}
	review.Spec = "kept"
	if err := c.Review(t.Context(), "/reviews", &review); err != nil || review.Status.By != "POST application/json" || review.Spec != "kept" {
		t.Errorf("%+v, %v", review, err)
	}
	if err := c.Review(t.Context(), "/denied", &review); err == nil || !strings.Contains(err.Error(), "you may not") {
		t.Errorf("%v", err)
	}
	if err := c.Review(t.Context(), "/version", &review); err == nil {
		t.Errorf("%+v", review)
	}
}
