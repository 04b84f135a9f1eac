package controllers_test

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/controller"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
	"github.com/istiod-lite/istiod-lite/pilot/trust"
)

// running is what a row has made.
type running interface {
	Run(ctx context.Context)
	Findings() []diag.Diagnostic
}

// row is a reconciler of the server, with one object.
type row struct {
	name string
	// build makes the reconciler and the object, which is not as it is wanted.
	build func(t *testing.T, s *apiserver.Server, client *rest.Config, lease *leader.Lease) running
	path  string                                       // of the object
	done  func(object *unstructured.Unstructured) bool // whether the object, nil if there is none, is as it is wanted
	gone  func(s *apiserver.Server)                    // ends the wish for the object
	// but has what faults do to this reconciler, by name, if it is not what they do to others.
	but map[string]outcome
}

// outcome is what a fault does.
type outcome struct {
	found  bool // whether it is a finding
	passes bool // whether the object is written meanwhile
}

// namespaces has the namespaces that get the roots.
type namespaces map[string]bool

func (n namespaces) Namespaces(string) (list []string) {
	for name := range n {
		list = append(list, name)
	}
	return list
}
func (n namespaces) TakesPart(_, name string) bool { return n[name] }
func (namespaces) Mesh() *mesh.Config              { return nil }

// roots are caBundles that never change.
type roots string

func (r roots) Roots() []byte           { return []byte(r) }
func (roots) Observed(string, [][]byte) {}

var quiet = slog.New(slog.DiscardHandler)

func rows() []row {
	webhook := row{
		name: "webhook configurations", path: "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/injector",
		done: func(o *unstructured.Unstructured) bool {
			hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
			bundle, _, _ := unstructured.NestedString(hooks[0].(map[string]any), "clientConfig", "caBundle")
			return bundle == base64.StdEncoding.EncodeToString([]byte("roots"))
		},
	}
	webhook.build = func(t *testing.T, s *apiserver.Server, client *rest.Config, lease *leader.Lease) running {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
			"metadata": map[string]any{"name": "injector", "labels": map[string]any{names.LabelRevision: "default"}},
			"webhooks": []any{map[string]any{
				"name": "a.sidecar-injector.istio.io", "clientConfig": map[string]any{"url": "https://127.0.0.1/inject"},
			}},
		}}
		s.Put(webhook.path, u)
		r := controller.New(controller.Options{
			Kind: controller.Mutating, Namespace: "istio-system", Lease: lease, Bundles: roots("roots"),
			Logger: quiet, Metrics: controller.NewMetrics(prometheus.NewRegistry()),
		})
		m, err := controllers.NewManager(
			controllers.Options{Client: client, Lease: lease, Always: true, Logger: quiet}, controllers.New("Webhook", "NotRead", r, quiet),
		)
		must.Succeed(t, err)
		return m
	}
	webhook.gone = func(s *apiserver.Server) { s.Drop(webhook.path) }

	roots := row{
		name: "roots", path: "/api/v1/namespaces/a/configmaps/roots",
		done: func(o *unstructured.Unstructured) bool {
			if o == nil {
				return false
			}
			text, _, _ := unstructured.NestedString(o.Object, "data", "pem")
			return text == "roots"
		},
	}
	roots.build = func(t *testing.T, s *apiserver.Server, client *rest.Config, lease *leader.Lease) running {
		selected := namespaces{"a": true}
		p, err := trust.New(trust.Options{
			Client: client, Lease: lease, World: selected, Logger: quiet,
			Maps: []trust.Map{{Name: "roots", Key: "pem", Text: func() []byte { return []byte("roots") }}},
		})
		must.Succeed(t, err)
		return p
	}
	roots.gone = func(s *apiserver.Server) { // the namespace is deleted
		s.Set(func() {
			s.Intercept = func(r *http.Request) error {
				if r.Method != http.MethodGet {
					return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "a")
				}
				return nil
			}
		})
	}
	return []row{
		webhook, roots, gatewayRow(), classRow(), analysisRow(), distributionRow(), derivedRow(), untaintRow(), bundleRow(), exportRow(),
	}
}

var (
	resource  = schema.GroupResource{Resource: "objects"}
	forbidden = apierrors.NewForbidden(resource, "x", errors.New("no role"))
)

// faults are what an API server does to requests.
var faults = []struct {
	name string
	does func(r *http.Request) error
	outcome
}{
	{"none", func(*http.Request) error { return nil }, outcome{passes: true}},
	{"403 for writes", writes(func(*http.Request) error { return forbidden }), outcome{found: true}},
	{"404 for writes", writes(func(*http.Request) error { return apierrors.NewNotFound(resource, "x") }), outcome{}},
	{"409 for writes", writes(func(*http.Request) error { return apierrors.NewConflict(resource, "x", nil) }), outcome{found: true}},
	{"500 for writes", writes(func(*http.Request) error { return apierrors.NewInternalError(errors.New("broken")) }), outcome{found: true}},
	{"503 for writes", writes(func(*http.Request) error { return apierrors.NewServiceUnavailable("busy") }), outcome{found: true}},
	{"no answer to writes", writes(func(r *http.Request) error {
		<-r.Context().Done()
		return r.Context().Err()
	}), outcome{found: true}},
	{"403 for reads", reads(func(*http.Request) error { return forbidden }), outcome{found: true}},
	{"404 for reads", reads(func(*http.Request) error { return apierrors.NewNotFound(resource, "") }), outcome{found: true}},
	{"500 for reads", reads(func(*http.Request) error { return apierrors.NewInternalError(errors.New("broken")) }), outcome{found: true}},
	{"no answer to reads", reads(func(r *http.Request) error {
		<-r.Context().Done()
		return r.Context().Err()
	}), outcome{found: true}},
	{"500 for the version", func(r *http.Request) error {
		if r.URL.Path == "/version" {
			return apierrors.NewInternalError(errors.New("broken"))
		}
		return nil
	}, outcome{passes: true}},
}

func writes(does func(r *http.Request) error) func(r *http.Request) error {
	return func(r *http.Request) error {
		if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/leases") {
			return nil
		}
		return does(r)
	}
}

func reads(does func(r *http.Request) error) func(r *http.Request) error {
	return func(r *http.Request) error {
		if r.Method != http.MethodGet || strings.Contains(r.URL.Path, "/leases") {
			return nil
		}
		return does(r)
	}
}

// start runs a row until the function that it returns is called.
func start(t *testing.T, x running) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		x.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// recovery is longer than the backoff of anything.
const recovery = 3 * time.Minute

// TestReconcilers takes each reconciler of the server through each fault: the fault is a finding, costs few requests
// and ends nothing. When it is over, the object is as it is wanted, and the finding is gone.
func TestReconcilers(t *testing.T) {
	for _, r := range rows() {
		for _, f := range faults {
			t.Run(r.name+"/"+f.name, func(t *testing.T) {
				want, other := r.but[f.name]
				if !other {
					want = f.outcome
				}
				synctest.Test(t, func(t *testing.T) {
					s := &apiserver.Server{Streamed: kinds.All()}
					x := r.build(t, s, s.Config(), nil)
					s.Set(func() { s.Intercept = f.does })
					defer start(t, x)()
					wait(10 * time.Minute)
					if got := r.done(s.Object(r.path)); got != want.passes {
						t.Errorf("with the fault: done %v", got)
					}
					if list := x.Findings(); len(list) > 0 != want.found {
						t.Errorf("with the fault: %v", list)
					}
					if n := len(s.Writes()); n > 600 {
						t.Errorf("%d writes in ten minutes", n)
					}
					s.Set(func() { s.Intercept = nil })
					wait(recovery)
					if list := x.Findings(); !r.done(s.Object(r.path)) || len(list) > 0 {
						t.Errorf("without the fault: done %v, findings %v", r.done(s.Object(r.path)), list)
					}
					s.Writes()
					wait(time.Hour)
					if list := s.Writes(); len(list) > 0 {
						t.Errorf("written although nothing has changed: %v", list)
					}
				})
			})
		}
		t.Run(r.name+"/deleted", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &apiserver.Server{Streamed: kinds.All()}
				x := r.build(t, s, s.Config(), nil)
				s.Set(func() { s.Intercept = writes(func(*http.Request) error { return forbidden }) })
				defer start(t, x)()
				wait(time.Minute)
				if len(x.Findings()) == 0 {
					t.Error("no finding")
				}
				r.gone(s)
				wait(recovery)
				if list := x.Findings(); len(list) > 0 {
					t.Errorf("about an object that is gone: %v", list)
				}
			})
		})
		t.Run(r.name+"/lost lease", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				elections, s := &apiserver.Server{}, &apiserver.Server{Streamed: kinds.All()}
				e := controllers.Election{Client: elections.Config(), Namespace: "istio-system", Identity: "one", Logger: quiet}
				lease, err := e.Lease("writers", "")
				must.Succeed(t, err)
				x := r.build(t, s, s.Config(), lease)
				s.Set(func() { s.Intercept = writes(func(*http.Request) error { return forbidden }) })
				defer start(t, x)()
				wait(time.Minute)
				if len(x.Findings()) == 0 {
					t.Error("no finding of the leader")
				}
				elections.Set(func() { elections.Intercept = func(*http.Request) error { return forbidden } })
				wait(time.Minute)
				if list := x.Findings(); len(list) != 1 || list[0].Code != "LeaseForbidden" {
					t.Errorf("deposed because it may not renew: %v", list)
				}
				elections.Set(func() { elections.Intercept = nil })
				wait(time.Minute)
				elections.Set(func() {
					elections.Intercept = func(*http.Request) error { return apierrors.NewServiceUnavailable("outage") }
				})
				wait(time.Minute)
				s.Set(func() { s.Intercept = nil })
				s.Writes()
				wait(10 * time.Minute)
				if list := s.Writes(); len(list) > 0 || len(x.Findings()) > 0 {
					t.Errorf("deposed: writes %v, findings %v", list, x.Findings())
				}
				elections.Set(func() { elections.Intercept = nil })
				wait(time.Minute)
				if !r.done(s.Object(r.path)) {
					t.Error("elected again, and nothing is written")
				}
			})
		})
	}
}
