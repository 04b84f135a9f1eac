package authenticate_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

// TestIssuerIsAskedForOnce has several callers wait for an API server that does not answer yet. One that leaves is not
// held up, and does not take the answer from the others.
func TestIssuerIsAskedForOnce(t *testing.T) {
	var requests atomic.Int64
	asked, answer := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			close(asked)
		}
		select {
		case <-answer:
			_, _ = w.Write([]byte(`{"issuer":"https://kubernetes.default.svc"}`))
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	a := must(authenticate.NewAPIServer(&rest.Config{Host: server.URL}))
	type result struct {
		issuer string
		err    error
	}
	ask := func(ctx context.Context) <-chan result {
		done := make(chan result, 1)
		go func() {
			issuer, err := a.Issuer(ctx)
			done <- result{issuer, err}
		}()
		return done
	}
	leaving, leave := context.WithCancel(t.Context())
	first, second := ask(leaving), ask(t.Context())
	select {
	case <-asked:
	case r := <-first:
		t.Fatalf("%+v before anybody was asked", r)
	}
	leave()
	if r := <-first; r.err == nil {
		t.Errorf("%+v", r)
	}
	close(answer)
	if r := <-second; r.err != nil || r.issuer != "https://kubernetes.default.svc" {
		t.Errorf("%+v", r)
	}
	if issuer, err := a.Issuer(t.Context()); err != nil || issuer == "" || requests.Load() != 1 {
		t.Errorf("%q, %v after %d requests", issuer, err, requests.Load())
	}
}

// TestRedirects follows no API server to another.
func TestRedirects(t *testing.T) {
	var led atomic.Bool
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		led.Store(true)
		_, _ = w.Write([]byte(`{"issuer":"https://kubernetes.default.svc"}`))
	}))
	defer inside.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inside.URL, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	a := must(authenticate.NewAPIServer(&rest.Config{Host: server.URL}))
	if issuer, err := a.Issuer(t.Context()); err == nil {
		t.Errorf("%q", issuer)
	}
	if v, err := a.Review(t.Context(), "token", nil); err == nil {
		t.Errorf("%+v", v)
	}
	if led.Load() {
		t.Error("the server was led elsewhere")
	}
	if http.DefaultClient.CheckRedirect != nil {
		t.Error("nobody else follows redirects either")
	}
}

// TestReviewTellsNoToken: an API server that fails may say what it was sent, and the error is logged.
func TestReviewTellsNoToken(t *testing.T) {
	const secret = "header.payload.signature"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
			"message": "failed on " + string(body), "code": 500})
	}))
	defer server.Close()
	a := must(authenticate.NewAPIServer(&rest.Config{Host: server.URL}))
	if _, err := a.Review(t.Context(), secret, nil); err == nil || strings.Contains(err.Error(), secret) ||
		!strings.Contains(err.Error(), "[redacted]") {
		t.Errorf("%v", err)
	}
}

// TestLongDiscovery: of an answer without end no more is read than an issuer's document has.
func TestLongDiscovery(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"issuer":"https://kubernetes.default.svc","more":"`)
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20)+`"}`)
	}))
	defer server.Close()
	a := must(authenticate.NewAPIServer(&rest.Config{Host: server.URL}))
	if issuer, err := a.Issuer(t.Context()); err == nil {
		t.Errorf("%q is read from a document of more than 1 MiB", issuer)
	}
}

// TestIssuerUnknown says why an issuer is not known.
func TestIssuerUnknown(t *testing.T) {
	for _, answer := range []string{"", "{", "{}"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if answer == "" {
				w.WriteHeader(http.StatusForbidden)
			}
			_, _ = w.Write([]byte(answer))
		}))
		a := must(authenticate.NewAPIServer(&rest.Config{Host: server.URL}))
		if issuer, err := a.Issuer(t.Context()); err == nil || !strings.Contains(err.Error(), "openid-configuration") {
			t.Errorf("%q, %v", issuer, err)
		}
		server.Close()
	}
}
