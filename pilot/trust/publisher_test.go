package trust_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/trust"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// world has the namespaces that take part.
type world struct {
	mu         sync.Mutex
	namespaces []string
	mesh       *mesh.Config
}

func (w *world) Namespaces(string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.namespaces
}

func (w *world) TakesPart(_, namespace string) bool {
	return slices.Contains(w.Namespaces(""), namespace)
}

func (w *world) Mesh() *mesh.Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mesh
}

func path(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps/roots" }

// TestPublisher writes what is missing or differs, once. What cannot be written delays nothing, and is tried again.
func TestPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := &apiserver.Server{}, &world{namespaces: []string{"a", "b", "forbidden", "gone", "z"}}
		var mu sync.Mutex
		text := "one"
		listed := make(chan struct{})
		refused := map[string]error{
			"forbidden": errors.New("forbidden"),
			"gone":      apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "gone"),
		}
		s.Intercept = func(r *http.Request) error {
			mu.Lock()
			defer mu.Unlock()
			if r.Method != http.MethodGet {
				return refused[strings.Split(r.URL.Path, "/")[4]]
			}
			if r.URL.Query().Get("fieldSelector") != "metadata.name=roots" {
				t.Errorf("more is read than is needed: %s", r.URL)
			}
			mu.Unlock()
			<-listed
			mu.Lock()
			return nil
		}
		// puts has another client write a ConfigMap.
		puts := func(namespace, text string, labels map[string]string) {
			u := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"pem": text, "other": "stays"},
			}}
			u.SetNamespace(namespace)
			u.SetName("roots")
			u.SetLabels(labels)
			s.Put(path(namespace), u)
		}
		labels := map[string]string{trust.Label: trust.LabelValue}
		puts("b", "one", labels)
		p, err := trust.New(trust.Options{
			Client: s.Config(), World: w, Logger: slog.New(slog.DiscardHandler),
			Maps: []trust.Map{{Name: "roots", Key: "pem", Text: func() []byte {
				mu.Lock()
				defer mu.Unlock()
				return []byte(text)
			}}},
		})
		must.Succeed(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.Run(ctx)
		}()
		// written checks what is written within some time. Attempts that are refused are left out.
		written := func(what string, within time.Duration, want ...string) {
			t.Helper()
			time.Sleep(within)
			synctest.Wait()
			var got []string
			for _, w := range s.Writes() {
				namespace := strings.Split(w.Path, "/")[4]
				mu.Lock()
				if refused[namespace] == nil {
					got = append(got, w.Method+" "+namespace)
				}
				mu.Unlock()
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v: want %v", what, got, want)
			}
		}
		findings := func(want string) {
			t.Helper()
			list := fmt.Sprint(p.Findings())
			if (want == "") != (len(p.Findings()) == 0) || !strings.Contains(list, want) {
				t.Errorf("%s: want %q", list, want)
			}
		}
		written("it is not known what there is", time.Hour)
		close(listed)
		written("at first", time.Minute, "POST a", "POST z")
		findings("ConfigMap forbidden/roots")
		p.NotifyAll()
		written("all are equal", time.Minute)
		puts("a", "edited", labels)
		written("edited", time.Second, "PATCH a")
		puts("a", "one", nil)
		written("without the label", 5*time.Second, "PATCH a")
		puts("a", "edited again", labels)
		puts("a", "edited once more", labels)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := len(s.Writes()); n != 1 && n != 2 { // both edits may be seen at once
			t.Errorf("edited twice: %d writes", n)
		}
		if data, _, _ := unstructured.NestedStringMap(s.Object(path("a")).Object, "data"); data["pem"] != "one" || data["other"] != "stays" {
			t.Errorf("%v", data)
		}
		s.Drop(path("z"))
		written("deleted", time.Second, "POST z")
		mu.Lock()
		delete(refused, "forbidden")
		mu.Unlock()
		written("allowed", time.Minute, "POST forbidden")
		findings("")
		mu.Lock()
		text = "two"
		mu.Unlock()
		p.NotifyAll()
		written("other roots", time.Minute, "PATCH a", "PATCH b", "PATCH forbidden", "PATCH z")
		w.mu.Lock()
		w.namespaces = []string{"a", "new"}
		w.mu.Unlock()
		p.Committed([]kinds.Change{
			{Key: kinds.Key{Kind: kinds.Namespace, Name: "new"}}, {Key: kinds.Key{Kind: kinds.Namespace, Name: "x", Cluster: "remote"}},
		})
		puts("b", "edited", labels)
		written("other namespaces", time.Minute, "POST new")
		w.mu.Lock()
		w.namespaces, w.mesh = []string{"a", "selected"}, &mesh.Config{}
		w.mu.Unlock()
		p.Committed(nil)
		written("another mesh configuration", time.Minute, "POST selected")
		mu.Lock()
		text = ""
		mu.Unlock()
		puts("a", "edited", labels)
		written("none is wanted", time.Minute)
		cancel()
		<-ended
	})
}

// TestExistingMaps keeps ConfigMaps that exist as they are wanted, and creates none.
func TestExistingMaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiserver.Server{}
		for namespace, text := range map[string]string{"old": "one", "right": "two"} {
			u := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"pem": text},
				"metadata": map[string]any{"name": "roots", "namespace": namespace, "labels": map[string]any{trust.Label: trust.LabelValue}},
			}}
			s.Put(path(namespace), u)
		}
		p, err := trust.New(trust.Options{
			Client: s.Config(), World: &world{namespaces: []string{"new", "old", "right"}}, Logger: slog.New(slog.DiscardHandler),
			Maps: []trust.Map{{Name: "roots", Key: "pem", Text: func() []byte { return []byte("two") }, Existing: true}},
		})
		must.Succeed(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.Run(ctx)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := fmt.Sprint(s.Writes()); got != "[PATCH "+path("old")+"]" || len(p.Findings()) > 0 {
			t.Errorf("writes %s, findings %v", got, p.Findings())
		}
		cancel()
		<-ended
	})
}

// TestFix: the remedy of a finding is about the fault. A ConfigMap of a namespace that is being deleted is no finding.
func TestFix(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	terminating := apierrors.NewForbidden(resource, "roots", errors.New("because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		exists  map[string]any // of the ConfigMap, which has no label; nil: there is none
		refused error          // of a write
		want    string         // of the remedy; empty: no finding
		writes  int            // in a second
	}{
		"immutable": {
			exists: map[string]any{"immutable": true, "data": map[string]any{"pem": "old"}}, want: "delete the ConfigMap",
		},
		"immutable, with the right data": {exists: map[string]any{"immutable": true, "data": map[string]any{"pem": "roots"}}, writes: 1},
		"too large a request":            {refused: apierrors.NewRequestEntityTooLargeError("limit is 3 MB"), want: "at most 1 MiB", writes: 1},
		"too large a ConfigMap": {
			refused: apierrors.NewInvalid(
				schema.GroupKind{Kind: "ConfigMap"}, "roots", field.ErrorList{field.TooLong(field.NewPath(""), "", 1<<20)},
			),
			want: "at most 1 MiB", writes: 1,
		},
		"forbidden": {
			refused: apierrors.NewForbidden(resource, "roots", errors.New("cannot create resource")), want: "grant create and patch", writes: 1,
		},
		"quota": {refused: apierrors.NewForbidden(resource, "roots", errors.New("exceeded quota: few")), want: "ResourceQuota", writes: 1},
		"webhook": {
			refused: apierrors.NewForbidden(resource, "roots", errors.New(`admission webhook "x" denied the request`)),
			want:    "mend what the error names", writes: 1,
		},
		"broken":      {refused: apierrors.NewInternalError(errors.New("no disk")), want: "mend what the error names", writes: 1},
		"terminating": {refused: terminating, writes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &apiserver.Server{Intercept: func(r *http.Request) error {
					if r.Method != http.MethodGet {
						return test.refused
					}
					return nil
				}}
				if test.exists != nil {
					u := &unstructured.Unstructured{Object: test.exists}
					u.SetAPIVersion("v1")
					u.SetKind("ConfigMap")
					u.SetNamespace("a")
					u.SetName("roots")
					s.Put(path("a"), u)
				}
				p, err := trust.New(trust.Options{
					Client: s.Config(), World: &world{namespaces: []string{"a"}}, Logger: slog.New(slog.DiscardHandler),
					Maps: []trust.Map{{Name: "roots", Key: "pem", Text: func() []byte { return []byte("roots") }}},
				})
				must.Succeed(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					p.Run(ctx)
				}()
				time.Sleep(time.Second / 2)
				synctest.Wait()
				list := p.Findings()
				if (test.want != "") != (len(list) == 1) || len(list) == 1 && !strings.Contains(list[0].Fix, test.want) {
					t.Errorf("findings %v: want %q", list, test.want)
				}
				if got := s.Writes(); len(got) != test.writes {
					t.Errorf("writes %v", got)
				}
				s.Set(func() { s.Intercept = nil })
				s.Drop(path("a"))
				time.Sleep(time.Minute)
				synctest.Wait()
				if u := s.Object(path("a")); len(p.Findings()) > 0 || test.refused != terminating && u == nil {
					t.Errorf("without the fault: %v, %v", p.Findings(), u)
				}
				cancel()
				<-ended
			})
		})
	}
}
