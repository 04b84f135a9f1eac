package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// listed lists Sidecars of a server with that answer to a path and the continue that was asked for. It returns "ns/name
// host" of each that was read, and what List returns for an error.
func listed(t *testing.T, namespace string, answer func(path, next string) (status int, body any)) (string, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, body := answer(r.URL.Path, r.URL.Query().Get("continue"))
		if status != http.StatusOK {
			writeStatus(w, status, "refused")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}))
	defer server.Close()
	l, err := List(
		context.Background(), ListOptions{Client: &rest.Config{Host: server.URL}, Kinds: []*kinds.Kind{kinds.Sidecar}, Namespace: namespace},
	)
	if err != nil {
		return "", err
	}
	var out []string
	for _, c := range l.Changes() {
		out = append(out, fmt.Sprintf("%s/%s %s", c.Namespace, c.Name, hostOf(c.Object)))
	}
	return strings.Join(out, ", "), nil
}

func pageOf(next string, hosts map[string]string) object {
	items := []any{}
	for name, host := range hosts {
		o := sidecar(host)
		o["metadata"] = object{"namespace": "a", "name": name, "uid": name + host, "generation": 1}
		items = append(items, o)
	}
	return object{"kind": "SidecarList", "metadata": object{"continue": next}, "items": items}
}

// What is gone when a list is begun anew is not there, and what has changed is as it is now.
func TestListBegunAnew(t *testing.T) {
	expired := false
	got, err := listed(t, "", func(_, next string) (int, any) {
		switch {
		case next == "" && !expired:
			return http.StatusOK, pageOf("more", map[string]string{"gone": "a/*", "changed": "a/*"})
		case !expired:
			expired = true
			return http.StatusGone, nil
		case next == "":
			return http.StatusOK, pageOf("rest", map[string]string{"changed": "b/*"})
		}
		return http.StatusOK, pageOf("", map[string]string{"new": "c/*"})
	})
	if want := "a/changed b/*, a/new c/*"; err != nil || got != want {
		t.Errorf("%q, %v: want %q", got, err, want)
	}
}

// A user limited to a namespace gets a kind that is served in an older version alone. It is an error if the API server
// cannot say what it serves, and none if it does not let this user ask.
func TestListOlderVersion(t *testing.T) {
	const group = "/apis/networking.istio.io/"
	for discovery, want := range map[int]string{
		http.StatusOK: "a/one a/*", http.StatusInternalServerError: "error", http.StatusForbidden: "",
	} {
		got, err := listed(t, "a", func(path, _ string) (int, any) {
			switch {
			case path == group+"v1beta1/namespaces/a/sidecars":
				return http.StatusOK, pageOf("", map[string]string{"one": "a/*"})
			case strings.HasSuffix(path, "/sidecars"):
				return http.StatusForbidden, nil
			case discovery != http.StatusOK:
				return discovery, nil
			case path == group+"v1beta1":
				return http.StatusOK, object{"kind": "APIResourceList", "resources": []any{object{"name": "sidecars"}}}
			}
			return http.StatusOK, object{"kind": "APIResourceList", "resources": []any{object{"name": "others"}}}
		})
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("discovery answers %d: %q (%v), want %q", discovery, got, err, want)
		}
	}
}

// The generation of an object comes with it, also where nothing else of it that is read has changed.
func TestGeneration(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.Sidecar)
	put := func(generation int) {
		o := sidecar("a/*")
		o["metadata"] = object{"generation": generation}
		a.put(pathOf(kinds.Sidecar), "a", "one", o)
	}
	put(3)
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.Sidecar}})
	r.synced()
	for _, generation := range []int{3, 4} {
		put(generation)
		until(t, fmt.Sprint("generation ", generation), func() bool {
			o := r.get(kinds.Sidecar, "a", "one")
			return o != nil && o.Generation == int64(generation)
		})
	}
}

// The deadline of a List is that of the Gets after it.
func TestGetKeepsTheDeadline(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	l, err := List(ctx, ListOptions{Client: &rest.Config{Host: server.URL}, Limits: limits.Default()})
	must.Succeed(t, err)
	_, err = l.Get(t.Context(), []kinds.Key{{Kind: kinds.Secret, Namespace: "a", Name: "s"}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
