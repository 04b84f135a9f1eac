package status

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// runner runs a reconciler with an API server.
type runner struct {
	*testing.T
	*apiserver.Server
	manager    *controllers.Manager
	controller *controllers.Controller
	log        bytes.Buffer
	stop       func()
}

func (r *runner) start(t *testing.T, reconciler controllers.Reconciler) {
	logger := slog.New(slog.NewTextHandler(&r.log, nil))
	r.T, r.Server = t, &apiserver.Server{}
	r.controller = controllers.New("Status", codeNotWritten, reconciler, logger)
	var err error
	r.manager, err = controllers.NewManager(controllers.Options{Client: r.Config(), Logger: logger}, r.controller)
	must.Succeed(t, err)
	r.begin()
}

// begin begins a term.
func (r *runner) begin() {
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.manager.Run(ctx)
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
}

// pass lets time pass, and returns how many statuses were written, or tried to be.
func (r *runner) pass(d time.Duration) int {
	time.Sleep(d)
	synctest.Wait()
	return len(r.Writes())
}

// refuse has requests with a method fail.
func (r *runner) refuse(method string, err error) {
	r.Set(func() {
		r.Intercept = func(request *http.Request) error {
			if request.Method == method && strings.Contains(request.URL.Path, "virtualservices") {
				return err
			}
			return nil
		}
	})
}

// rig is an Analysis with an API server of VirtualServices in namespace a.
type rig struct {
	runner
	*Analysis
	version string

	mu      sync.Mutex
	list    []diag.Diagnostic
	more    bool // than list
	objects map[kinds.Key]*kinds.Object
}

// onRig runs a test with VirtualServices, which are of one version.
func onRig(t *testing.T, version string, test func(*rig), objects ...*unstructured.Unstructured) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{version: version, objects: map[kinds.Key]*kinds.Object{}}
		r.Analysis = NewAnalysis(r, r, NewLimit(0))
		r.start(t, r.Analysis)
		defer func() { r.stop() }()
		r.Set(func() {
			r.Intercept = func(request *http.Request) error {
				if path := request.URL.Path; strings.Contains(path, "virtualservices") && !strings.Contains(path, "/"+r.version+"/") {
					return apierrors.NewNotFound(schema.GroupResource{}, "")
				}
				return nil
			}
		})
		for _, o := range objects {
			r.Put(r.path(o.GetName()), o)
		}
		test(r)
	})
}

func (r *rig) path(name string) string {
	return "/apis/networking.istio.io/" + r.version + "/namespaces/a/virtualservices/" + name
}

func (r *rig) Object(k kinds.Key) *kinds.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects[k]
}

func (r *rig) Accepts(_ string, labels map[string]string) bool { return labels["istio.io/rev"] == "" }

func (r *rig) Describe(code string) Code { return describe(code) }

func (r *rig) Found() ([]diag.Diagnostic, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list, !r.more
}

// accept accepts an object, as of a generation.
func (r *rig) accept(name, uid string, generation int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: name}
	r.objects[k] = &kinds.Object{Key: k, UID: uid, Generation: generation}
}

func (r *rig) analysedAs(name string, generation int64) { r.accept(name, "uid-"+name, generation) }

// finds sets the findings, each of which is the name of an object and a code.
func (r *rig) finds(all ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = nil
	for _, text := range all {
		name, code, _ := strings.Cut(text, " ")
		r.list = append(r.list, diag.Diagnostic{Severity: diag.Error, Code: code, Object: "VirtualService a/" + name, Message: "wrong"})
	}
}

// analyse ends an analysis, and returns how many statuses were written because of it.
func (r *rig) analyse() int {
	r.Writes()
	r.Analysed()
	r.manager.NotifyAll()
	return r.pass(5 * time.Second)
}

// says fails unless a status has a number of messages.
func (r *rig) says(name string, want int) {
	r.Helper()
	all, _, _ := unstructured.NestedSlice(r.Server.Object(r.path(name)).Object, "status", messages)
	if len(all) != want {
		r.Errorf("%s: %d messages of %s, want %d", r.version, len(all), name, want)
	}
}

// route is a VirtualService of generation 3, with a message in its status or without.
func route(version, name, revision string, message bool) *unstructured.Unstructured {
	meta := map[string]any{"namespace": "a", "name": name, "uid": "uid-" + name, "generation": int64(3)}
	if revision != "" {
		meta["labels"] = map[string]any{"istio.io/rev": revision}
	}
	u := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "networking.istio.io/" + version, "kind": "VirtualService", "metadata": meta},
	}
	if message {
		u.Object["status"] = map[string]any{messages: []any{map[string]any{"level": "ERROR"}}}
	}
	return u
}

// TestWriterTakesOver: a new leader takes away what one before wrote about objects of this revision that have no
// findings. It writes nothing about objects of others. It uses the version that is served.
func TestWriterTakesOver(t *testing.T) {
	for _, version := range kinds.VirtualService.Versions {
		onRig(t, version, func(r *rig) {
			r.analysedAs("mended", 3)
			r.finds("others X")
			r.Analysed()
			r.manager.NotifyAll()
			if n := r.pass(15 * time.Second); n != 1 {
				t.Errorf("%s: %d statuses are written, want 1", version, n)
			}
			r.says("mended", 0)
			r.says("other", 1)
			r.says("others", 0)
		}, route(version, "mended", "", true), route(version, "other", "canary", true), route(version, "others", "canary", false))
	}
}

// TestWriterIsStale: an object that has changed since it was analysed, or that is another one by now, is written after
// the next analysis. The status of an invalid version is written, because the findings are about that one.
func TestWriterIsStale(t *testing.T) {
	onRig(t, "v1", func(r *rig) {
		r.finds("x X")
		for _, uid := range []string{"uid-x", "before"} {
			r.accept("x", uid, map[string]int64{"uid-x": 2, "before": 3}[uid])
			if n := r.analyse(); n != 0 {
				t.Errorf("as of %s, %d statuses are written", uid, n)
			}
		}
		r.analysedAs("x", 3)
		r.analysedAs("y", 2)
		if n := r.analyse(); n != 1 {
			t.Errorf("%d statuses are written, want that of x", n)
		}
		r.says("x", 1)
		r.analysedAs("y", 3)
		if n := r.analyse(); n != 1 {
			t.Errorf("%d statuses are written, want that of y", n)
		}
		r.says("y", 0)
		r.analysedAs("x", 2)
		r.finds("x X", "x Unusable")
		if n := r.analyse(); n != 1 {
			t.Errorf("%d statuses are written, want that of x, which is invalid", n)
		}
		r.says("x", 2)
		if r.log.Len() > 0 {
			t.Errorf("log: %s", r.log.String())
		}
	}, route("v1", "x", "", false), route("v1", "y", "", true))
}

// TestWriterIsRefused: what is refused is a finding and is tried again with backoff, until it is written. A forbidden
// kind backs off as one, with one finding. An object that is gone is no finding.
func TestWriterIsRefused(t *testing.T) {
	resource := schema.GroupResource{Group: "networking.istio.io", Resource: "virtualservices"}
	for _, c := range []struct {
		err   error
		found int
	}{
		{apierrors.NewForbidden(resource, "x", nil), 1}, {apierrors.NewInvalid(schema.GroupKind{Kind: "VirtualService"}, "x", nil), 2},
		{apierrors.NewInternalError(fmt.Errorf("away")), 2},
	} {
		onRig(t, "v1", func(r *rig) {
			for _, name := range []string{"x", "y", "gone"} {
				r.analysedAs(name, 3)
			}
			r.finds("x X", "y X", "gone X")
			r.refuse(http.MethodPatch, c.err)
			r.analyse()
			list := r.manager.Findings()
			if len(list) != c.found || strings.HasPrefix(list[0].Fix, "grant") != (c.found == 1) {
				t.Errorf("%v: %v", c.err, list)
			}
			if n := strings.Count(r.log.String(), "\n"); n != c.found {
				t.Errorf("%v: log: %s", c.err, r.log.String())
			}
			if n := r.pass(time.Hour); n < 55*c.found || n > 70*c.found {
				t.Errorf("%v: %d tries in an hour", c.err, n)
			}
			reads := 0
			r.Set(func() {
				r.Intercept = func(request *http.Request) error {
					if strings.HasSuffix(request.URL.Path, "gone") {
						reads++
					}
					return nil
				}
			})
			r.pass(2 * time.Minute)
			if reads > 3*len(kinds.VirtualService.Versions) {
				t.Errorf("%v: an object that is gone is read %d times in two minutes", c.err, reads)
			}
			r.says("x", 1)
			r.says("y", 1)
			if list := r.manager.Findings(); len(list) > 0 {
				t.Errorf("%v: then %v", c.err, list)
			}
		}, route("v1", "x", "", false), route("v1", "y", "", false))
	}
	onRig(t, "v1", func(r *rig) {
		r.analysedAs("x", 3)
		r.refuse(http.MethodGet, apierrors.NewForbidden(resource, "x", nil))
		r.analyse()
		if list := r.manager.Findings(); len(list) != 1 || !strings.Contains(
			list[0].Message, "objects of virtualservices.networking.istio.io whose statuses an earlier leader wrote cannot be listed",
		) {
			t.Errorf("a kind that may not be listed: %v", list)
		}
		r.refuse("", nil)
		r.pass(time.Minute)
		r.says("x", 0)
	}, route("v1", "x", "", true))
}

// TestOneIsForbidden: an object that is forbidden alone delays the others of its kind only for a while.
func TestOneIsForbidden(t *testing.T) {
	onRig(t, "v1", func(r *rig) {
		r.analysedAs("x", 3)
		r.analysedAs("y", 3)
		r.finds("x X", "y X")
		first := ""
		r.Set(func() {
			r.Intercept = func(request *http.Request) error {
				if first == "" && request.Method == http.MethodPatch {
					first = request.URL.Path
				}
				if request.Method == http.MethodPatch && request.URL.Path == first {
					return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
				}
				return nil
			}
		})
		r.analyse()
		r.pass(time.Minute)
		other := map[bool]string{true: "y", false: "x"}[strings.Contains(first, "/x/")]
		r.says(other, 1)
		if n := r.pass(time.Hour); n < 55 || n > 70 {
			t.Errorf("%d tries in an hour", n)
		}
		if list := r.manager.Findings(); len(list) != 1 {
			t.Errorf("findings %v", list)
		}
	}, route("v1", "x", "", false), route("v1", "y", "", false))
}

// TestFindingComesBack: a finding that goes while its status cannot be written, and comes back, is written.
func TestFindingComesBack(t *testing.T) {
	onRig(t, "v1", func(r *rig) {
		r.analysedAs("x", 3)
		r.finds("x X")
		r.refuse(http.MethodPatch, apierrors.NewInternalError(fmt.Errorf("away")))
		r.analyse()
		r.finds()
		r.pass(2 * time.Minute)
		r.refuse("", nil)
		r.finds("x X")
		r.pass(r.Resync())
		r.says("x", 1)
	}, route("v1", "x", "", false))
}

// TestVersionsChange: once the API server serves another version of a kind, statuses are written with it.
func TestVersionsChange(t *testing.T) {
	onRig(t, "v1", func(r *rig) {
		r.analysedAs("x", 3)
		r.finds("x X")
		r.analyse()
		r.Drop(r.path("x"))
		r.version = "v1beta1"
		r.Put(r.path("x"), route(r.version, "x", "", true))
		r.finds("x X", "x Y")
		r.pass(r.Resync())
		r.says("x", 2)
	}, route("v1", "x", "", false))
}

// TestWriterKnowsThatThereIsMore: while findings are left out, no status comes to say that nothing is wrong.
func TestWriterKnowsThatThereIsMore(t *testing.T) {
	onRig(t, "v1", func(r *rig) {
		r.analysedAs("x", 3)
		r.analysedAs("y", 3)
		r.finds("y X")
		r.more = true
		if n := r.analyse(); n != 1 {
			t.Errorf("%d statuses are written, want that of y alone", n)
		}
		r.says("x", 1)
		r.says("y", 1)
		r.finds()
		r.mu.Lock()
		r.more = false
		r.mu.Unlock()
		if n := r.analyse(); n != 2 {
			t.Errorf("%d statuses are written, want both", n)
		}
		r.says("x", 0)
		r.says("y", 0)
	}, route("v1", "x", "", true), route("v1", "y", "", false))
}

// TestRunLooksByItself: what is found without an analysis, and what is mended so, is written within 10 seconds.
func TestRunLooksByItself(t *testing.T) {
	onRig(t, "v1", func(r *rig) {
		r.analysedAs("x", 3)
		r.analyse()
		for _, list := range [][]string{{"x Unusable"}, nil} {
			r.finds(list...)
			r.pass(r.Resync())
			r.says("x", len(list))
		}
	}, route("v1", "x", "", false))
}

// TestRunWaitsForAnalysis: before the first analysis nothing is taken away, and nothing is requested.
func TestRunWaitsForAnalysis(t *testing.T) {
	onRig(t, "v1", func(r *rig) {
		r.analysedAs("x", 3)
		r.Set(func() {
			r.Intercept = func(request *http.Request) error {
				t.Errorf("%s %s before the first analysis", request.Method, request.URL)
				return nil
			}
		})
		r.pass(time.Hour)
		r.refuse("", nil)
		r.analyse()
		r.pass(r.Resync())
		r.says("x", 0)
	}, route("v1", "x", "", true))
}
