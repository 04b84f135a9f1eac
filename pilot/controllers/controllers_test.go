package controllers

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// colors is a Reconciler that gives each ConfigMap with a label a color.
type colors struct {
	mu     sync.Mutex
	color  string
	panics bool
	calls  int
	also   []reconcile.Request

	c       client.Client
	watched client.Reader
}

func configMap() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("ConfigMap")
	return u
}

func (r *colors) Kinds() []*kinds.Kind { return []*kinds.Kind{kinds.ConfigMap} }

func (r *colors) Watches() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{configMap(): {Label: labels.SelectorFromSet(labels.Set{"colored": "true"})}}
}

func (r *colors) Requests(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

func (r *colors) All() []reconcile.Request { return r.also }

func (r *colors) Begin(c client.Client, watched client.Reader) { r.c, r.watched = c, watched }

func (r *colors) Finding(request reconcile.Request, _ error) diag.Diagnostic {
	return diag.Diagnostic{Code: "NotColored", Object: "ConfigMap " + request.String()}
}

func (r *colors) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r.mu.Lock()
	color, panics := r.color, r.panics
	r.calls++
	r.mu.Unlock()
	if panics {
		panic("of the reconciler")
	}
	u := configMap()
	if err := r.watched.Get(ctx, request.NamespacedName, u); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if got, _, _ := unstructured.NestedString(u.Object, "data", "color"); got == color {
		return reconcile.Result{}, nil
	}
	before := u.DeepCopy()
	must := unstructured.SetNestedField(u.Object, color, "data", "color")
	return reconcile.Result{}, errors.Join(must, r.c.Patch(ctx, u, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

const path = "/api/v1/namespaces/a/configmaps/"

func (r *colors) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

func (r *colors) change(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
}

// scene is an API server with ConfigMaps, and a Manager that colors them.
type scene struct {
	*testing.T
	*apiserver.Server
	*colors
	controller *Controller
	manager    *Manager
	log        *strings.Builder

	unreachable error // of each request, beneath the client; nil if the API server can be reached
}

func newScene(t *testing.T, lease *leader.Lease, names ...string) *scene {
	s := &scene{T: t, Server: &apiserver.Server{}, colors: &colors{color: "red"}, log: &strings.Builder{}}
	for _, name := range names {
		s.add(name)
	}
	logger := slog.New(slog.NewTextHandler(s.log, nil))
	s.controller = New("ConfigMap", "ColorsNotRead", s.colors, logger)
	var err error
	config := s.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return cable{s, next} })
	s.manager, err = NewManager(Options{Client: config, Lease: lease, Logger: logger}, s.controller)
	must.Succeed(t, err)
	return s
}

// cable is the way to the API server.
type cable struct {
	s    *scene
	next http.RoundTripper
}

func (c cable) RoundTrip(r *http.Request) (*http.Response, error) {
	c.s.mu.Lock()
	err := c.s.unreachable
	c.s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return c.next.RoundTrip(r)
}

func (s *scene) add(name string) {
	u := configMap()
	u.SetNamespace("a")
	u.SetName(name)
	u.SetLabels(map[string]string{"colored": "true"})
	s.Put(path+name, u)
}

// run runs the Manager until the function that it returns is called.
func (s *scene) run() (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.manager.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// pass lets time pass, and waits until all that is due has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *scene) colored(what, want string, names ...string) {
	s.Helper()
	for _, name := range names {
		if got, _, _ := unstructured.NestedString(s.Object(path+name).Object, "data", "color"); got != want {
			s.Errorf("%s: %s is %q, want %q", what, name, got, want)
		}
	}
}

func (s *scene) found(what string, want ...string) {
	s.Helper()
	var got []string
	for _, d := range s.manager.Findings() {
		got = append(got, d.String())
	}
	if len(got) != len(want) {
		s.Errorf("%s: %q, want %q", what, got, want)
		return
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			s.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}

// writes returns what was written, without the path that all ConfigMaps have.
func (s *scene) wrote() (list []string) {
	for _, w := range s.Writes() {
		list = append(list, w.Method+" "+strings.TrimPrefix(w.Path, path))
	}
	slices.Sort(list)
	return list
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "a", Name: name}}
}

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("no role"))

// fails has the API server refuse requests whose method and path begin so.
func (s *scene) fails(method, prefix string, err error) {
	s.Set(func() {
		s.Intercept = func(r *http.Request) error {
			if r.Method == method && strings.HasPrefix(r.URL.Path, prefix) {
				return err
			}
			return nil
		}
	})
}

// TestTerms: each term begins with everything, and a change between terms is not lost.
func TestTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil, "one", "two")
		s.controller.Notify(request("one"))
		stop := s.run()
		pass(time.Second)
		s.colored("the first term", "red", "one", "two")
		s.add("three")
		pass(time.Second)
		s.colored("an event", "red", "three")
		s.change(func() { s.color = "green" })
		s.controller.Notify(request("two"))
		pass(5 * time.Second)
		s.colored("notified", "green", "two")
		s.colored("not notified", "red", "one", "three")
		s.controller.NotifyAll()
		pass(5 * time.Second)
		s.colored("all are notified", "green", "one", "two", "three")
		stop()
		s.change(func() { s.color = "blue" })
		s.controller.NotifyAll()
		s.controller.Notify(request("one"))
		pass(time.Minute)
		s.colored("between terms", "green", "one", "two", "three")
		stop = s.run()
		pass(time.Second)
		s.colored("the next term", "blue", "one", "two", "three")
		pass(maxPause)
		calls := s.count()
		pass(time.Hour)
		if n := s.count() - calls; n != 0 {
			t.Errorf("%d calls in an hour without an event", n)
		}
		stop()
	})
}

// TestNamespaces: a Manager that is limited to namespaces lists and watches there, and needs no right elsewhere.
func TestNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil, "one")
		s.manager.o.Namespaces = []string{"a", "empty"}
		other := s.Object(path + "one").DeepCopy()
		other.SetNamespace("b")
		const elsewhere = "/api/v1/namespaces/b/configmaps/one"
		s.Put(elsewhere, other)
		s.fails(http.MethodGet, "/api/v1/configmaps", forbidden)
		stop := s.run()
		pass(time.Second)
		s.colored("listed", "red", "one")
		s.add("two")
		pass(time.Second)
		s.colored("watched", "red", "two")
		s.found("no right is missing")
		if data := s.Object(elsewhere).Object["data"]; data != nil {
			t.Errorf("the object of another namespace has %v", data)
		}
		stop()
	})
}

// TestFailures: what fails is a finding and is tried again for good, and nothing else waits for it.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil, "one", "two")
		s.fails(http.MethodPatch, path+"one", forbidden)
		stop := s.run()
		pass(time.Second)
		s.colored("another object", "red", "two")
		s.found("forbidden", "ConfigMap a/one: configmaps \"x\" is forbidden")
		s.wrote()
		pass(time.Hour)
		if n := len(s.wrote()); n < 60 || n > 70 {
			t.Errorf("%d tries in an hour", n)
		}
		if n := strings.Count(s.log.String(), "failed to reconcile ConfigMap"); n != 1 {
			t.Errorf("%d lines of log: %s", n, s.log)
		}
		s.fails(http.MethodPatch, path+"one", apierrors.NewInternalError(errors.New("broken")))
		pass(limits.MaxBackoff)
		s.found("another error", "broken")
		s.fails("", "", nil)
		pass(limits.MaxBackoff)
		s.colored("allowed", "red", "one")
		s.found("allowed")

		s.fails(http.MethodPatch, path, apierrors.NewConflict(schema.GroupResource{}, "x", nil))
		s.add("three")
		pass(maxConflicts * limits.MinBackoff) // they are up to maxPause apart
		s.found("conflicts")
		pass(maxConflicts * maxPause)
		s.found("conflicts in a row", "Operation cannot be fulfilled")
		s.fails("", "", nil)
		pass(limits.MaxBackoff)
		s.found("no conflict any more")
		pass(5 * time.Second)
		s.colored("no conflict", "red", "three")

		s.Set(func() {
			s.Intercept = func(r *http.Request) error {
				if r.Method == http.MethodPatch {
					<-r.Context().Done()
				}
				return nil
			}
		})
		s.add("four")
		pass(reconcileTimeout + time.Second)
		s.found("a slow API server", "ConfigMap a/four")
		s.Drop(path + "four")
		pass(reconcileTimeout + limits.MaxBackoff)
		s.found("the object is gone")

		s.change(func() { s.panics = true })
		s.add("five")
		pass(time.Second)
		s.found("a panic", "panic")
		s.fails(http.MethodPatch, path, forbidden)
		s.change(func() { s.panics = false })
		pass(limits.MaxBackoff)
		s.found("no panic", "forbidden")
		stop()
		s.found("the term has ended")
	})
}

// TestSlowObjects: while the API server does not answer to writes of many objects, another object waits for one of
// them.
func TestSlowObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil, "slow1", "slow2", "slow3", "slow4", "slow5", "slow6")
		s.Set(func() {
			s.Intercept = func(r *http.Request) error {
				if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "slow") {
					<-r.Context().Done()
				}
				return nil
			}
		})
		stop := s.run()
		pass(time.Hour)
		s.add("one")
		pass(reconcileTimeout + time.Second)
		s.colored("beside slow ones", "red", "one")
		stop()
	})
}

// TestNotLeaderForAMoment: a write that the Guard refuses is made in the same term, if the term continues.
func TestNotLeaderForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		stop := s.run()
		pass(time.Minute)
		s.change(func() { s.unreachable = leader.ErrNotLeader })
		s.add("one")
		pass(time.Second)
		s.found("refused")
		s.change(func() { s.unreachable = nil })
		pass(5 * time.Second)
		s.colored("leader again", "red", "one")
		stop()
	})
}

// panicking is a Reconciler with a method that panics.
type panicking struct {
	*colors
	method string
}

func (p panicking) panics(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.colors.panics && p.method == method {
		panic("of " + method)
	}
}

func (p panicking) All() []reconcile.Request {
	p.panics("All")
	return p.colors.All()
}

func (p panicking) Requests(ctx context.Context, o client.Object) []reconcile.Request {
	p.panics("Requests")
	return p.colors.Requests(ctx, o)
}

func (p panicking) Start(ctx context.Context) error {
	p.panics("Start")
	<-ctx.Done()
	return nil
}

// TestPanics: a panic in any method of a Reconciler is logged, and does not end the process. Controllers that cannot be
// started are a finding.
func TestPanics(t *testing.T) {
	for _, method := range []string{"All", "Requests", "Start"} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, nil, "one")
			s.panics = true
			s.controller.reconciler = panicking{s.colors, method}
			stop := s.run()
			pass(time.Minute)
			if !strings.Contains(s.log.String(), "of "+method) {
				t.Errorf("%s: log %q", method, s.log)
			}
			if method == "Start" {
				s.found("the controllers do not run", "failed to run the controllers of ConfigMap: ")
			}
			s.change(func() { s.panics = false })
			s.controller.NotifyAll()
			pass(limits.MaxBackoff + failureReset)
			s.found("no panic in " + method)
			s.colored("no panic in "+method, "red", "one")
			stop()
		})
	}
}

// TestUndone: what another client undoes is written again, at most once a second. It is a finding until the client
// stops.
func TestUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil, "one")
		stop := s.run()
		defer stop()
		for range 600 {
			pass(100 * time.Millisecond)
			s.add("one")
		}
		if n := len(s.wrote()); n < 12 || n > 20 {
			t.Errorf("%d writes in a minute", n)
		}
		pass(maxPause)
		s.colored("it is not undone", "red", "one")
		s.found("it was undone", "another client undoes what this server writes; stop the other client")
		if n := strings.Count(s.log.String(), "failed to reconcile"); n != 1 {
			t.Errorf("%d lines of log", n)
		}
		pass(pauseReset)
		s.found("it is not undone")
		s.add("one")
		pass(time.Second)
		s.colored("after a pause", "red", "one")
	})
}

// TestUnreadable: a kind that cannot be listed is a finding, holds up nothing and is tried again.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil, "one")
		s.fails(http.MethodGet, "/api/v1/configmaps", forbidden)
		stop := s.run()
		pass(time.Hour)
		s.found("forbidden", "ConfigMap objects cannot be read: configmaps \"x\" is forbidden: no role; grant list and watch")
		s.fails("", "", nil)
		pass(limits.MaxBackoff)
		s.colored("allowed", "red", "one")
		s.found("allowed")
		s.fails(http.MethodGet, "/api/v1/configmaps", apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, ""))
		stop()
		stop = s.run()
		pass(time.Minute)
		s.found("not served", "not found; install the CustomResourceDefinition of the kind, or enable its API")
		stop()
		s.found("the term has ended")
	})
}

// TestUnwatchable: a kind that can be listed and not watched is a finding that stays, and one line of log. Neither is
// new with each try of a connection that is refused.
func TestUnwatchable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil, "one")
		refuses := func(err error) {
			s.Set(func() {
				s.Intercept = func(r *http.Request) error {
					if r.URL.Query().Get("watch") != "" {
						return err
					}
					return nil
				}
			})
		}
		lines := func(what string, want int) {
			t.Helper()
			if n := strings.Count(s.log.String(), "failed to list and watch objects"); n != want {
				t.Errorf("%s: %d lines of log, want %d: %s", what, n, want, s.log)
			}
		}
		refuses(forbidden)
		stop := s.run()
		pass(time.Hour)
		s.found("forbidden", "ConfigMap objects cannot be read: configmaps \"x\" is forbidden")
		lines("forbidden", 1)
		refuses(nil)
		pass(limits.MaxBackoff)
		s.found("allowed")
		stop()
		s.change(func() { s.unreachable = errors.New("connection refused") })
		stop = s.run()
		pass(time.Hour)
		s.found("unreachable", "ConfigMap objects cannot be read: connection refused")
		lines("unreachable", 2)
		refuses(forbidden)
		s.change(func() { s.unreachable = nil })
		pass(limits.MaxBackoff)
		s.change(func() { s.unreachable = errors.New("connection refused") })
		pass(time.Hour)
		s.found("unreachable once it was listed", "ConfigMap objects cannot be read: connection refused")
		stop()
	})
}

// TestStreamedList: the finding about a list that was forbidden ends with a watch that begins with a list, because no
// other list follows.
func TestStreamedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil, "one")
		s.Streamed = s.Kinds()
		s.Intercept = func(*http.Request) error { return forbidden }
		stop := s.run()
		pass(time.Minute)
		s.found("forbidden", "ConfigMap objects cannot be read: configmaps \"x\" is forbidden")
		s.Set(func() { s.Intercept = nil })
		pass(limits.MaxBackoff)
		s.found("allowed")
		stop()
	})
}

// TestOnDemand: a Manager that is not needed sends no request, and does not stand for election.
func TestOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil, "one")
		e := Election{Client: s.Config(), Namespace: "istio-system", Identity: "this", Logger: slog.New(slog.DiscardHandler)}
		lease, err := e.Lease("writers", "")
		must.Succeed(t, err)
		s.manager, err = NewManager(Options{Client: s.Config(), Lease: lease, OnDemand: true, Logger: e.Logger}, s.controller)
		must.Succeed(t, err)
		requests := 0
		s.Set(func() {
			s.Intercept = func(*http.Request) error {
				s.change(func() { requests++ })
				return nil
			}
		})
		s.run()() // ends although it has not begun
		stop := s.run()
		pass(time.Hour)
		s.manager.NotifyAll()
		pass(time.Hour)
		if requests > 0 || s.manager.Needed() {
			t.Errorf("%d requests before it is needed", requests)
		}
		s.manager.Need()
		s.manager.Need()
		pass(time.Minute)
		s.colored("needed", "red", "one")
		stop()
	})
}

// TestLease: Controllers run while the Lease is held, and a write of the deposed is not sent.
func TestLease(t *testing.T) {
	for _, always := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			api := &apiserver.Server{}
			lease := func(identity string) *leader.Lease {
				e := Election{Client: api.Config(), Namespace: "istio-system", Identity: identity, Logger: slog.New(slog.DiscardHandler)}
				l, err := e.Lease("writers", "")
				must.Succeed(t, err)
				return l
			}
			other, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				lease("other").Run(other, func(ctx context.Context) { <-ctx.Done() })
			}()
			pass(time.Minute)
			s := newScene(t, lease("this"), "one")
			s.Server.Set(func() {
				s.Intercept = func(r *http.Request) error {
					if strings.Contains(r.URL.Path, "/leases") {
						t.Error("the Lease is in another API server")
					}
					return nil
				}
			})
			s.manager.o.Always = always
			stop := s.run()
			pass(10 * time.Minute)
			if list := s.wrote(); len(list) > 0 {
				t.Errorf("written without the Lease: %v", list)
			}
			s.found("without the Lease")
			if n := s.count(); n > 0 != always {
				t.Errorf("%d calls without the Lease", n)
			}
			cancel()
			<-ended
			pass(time.Minute)
			s.colored("elected", "red", "one")
			s.fails(http.MethodPatch, path, forbidden)
			s.add("two")
			pass(time.Second)
			s.found("elected", "ConfigMap a/two")
			api.Set(func() {
				api.Intercept = func(*http.Request) error { return apierrors.NewInternalError(errors.New("outage")) }
			})
			pass(time.Minute)
			s.found("deposed")
			s.fails("", "", nil)
			s.wrote()
			pass(10 * time.Minute)
			if list := s.wrote(); len(list) > 0 {
				t.Errorf("written by the deposed: %v", list)
			}
			api.Set(func() { api.Intercept = nil })
			pass(time.Minute)
			s.colored("elected again", "red", "two")
			stop()
		})
	}
}

// two is a Reconciler of two kinds.
type two struct{ *colors }

func (two) Kinds() []*kinds.Kind { return []*kinds.Kind{kinds.ConfigMap, kinds.Secret} }

// TestRate: the requests for all kinds together have the rate of the configuration.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := (&apiserver.Server{}).Config()
		config.QPS = 5
		logger := slog.New(slog.DiscardHandler)
		m, err := NewManager(Options{Client: config, Logger: logger}, New("ConfigMap", "ColorsNotRead", two{&colors{}}, logger))
		must.Succeed(t, err)
		began := time.Now()
		for i := range 60 {
			u := configMap()
			u.SetKind([]string{"ConfigMap", "Secret"}[i%2])
			_ = m.client.Get(t.Context(), types.NamespacedName{Namespace: "a", Name: "b"}, u)
		}
		if d := time.Since(began); d < 9*time.Second {
			t.Errorf("60 requests, 10 of them at once, took %v", d)
		}
	})
}
