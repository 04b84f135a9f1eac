package crd

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// The deadline of a List is that of the Gets after it.
func TestGetKeepsTheDeadline(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	l, err := List(ctx, ListOptions{Client: &rest.Config{Host: server.URL}, Limits: limits.Default()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Get(t.Context(), []kinds.Key{{Kind: kinds.Secret, Namespace: "a", Name: "s"}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
