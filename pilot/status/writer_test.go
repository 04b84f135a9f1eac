package status

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// rig is a Writer with an API server of VirtualServices in namespace a.
type rig struct {
	*Writer
	t        *testing.T
	client   *fake.FakeDynamicClient
	findings []diag.Diagnostic
	more     bool // than findings
	objects  map[kinds.Key]*kinds.Object
	log      bytes.Buffer
}

func newRig(t *testing.T, version string, objects ...runtime.Object) *rig {
	lists := map[schema.GroupVersionResource]string{}
	for _, k := range kinds.All() {
		for _, v := range k.Versions {
			lists[schema.GroupVersionResource{Group: k.Group, Version: v, Resource: k.Plural}] = k.Name + "List"
		}
	}
	r := &rig{t: t, client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...), objects: map[kinds.Key]*kinds.Object{}}
	r.client.PrependReactor("*", "virtualservices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetResource().Version != version {
			return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
		}
		return false, nil, nil
	})
	r.Writer = New(Options{
		Client: r.client, Findings: func() ([]diag.Diagnostic, bool) { return r.findings, !r.more }, Object: func(k kinds.Key) *kinds.Object { return r.objects[k] },
		Counts:   func(_ string, labels map[string]string) bool { return labels["istio.io/rev"] == "" },
		Describe: describe, Interval: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	r.begin()
	return r
}

// begin forgets what was written, as a new leader has it.
func (r *rig) begin() {
	r.limit, r.written, r.served, r.refused = rate.NewLimiter(rate.Inf, 1), nil, map[*kinds.Kind]string{}, map[string]bool{}
}

// refuse has requests fail.
func (r *rig) refuse(verb string, err error) {
	r.client.PrependReactor(verb, "virtualservices", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

func keyNamed(name string) kinds.Key {
	return kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: name}
}

// analysed has an object that counts, as of that generation.
func (r *rig) analysed(name string, generation int64) {
	r.objects[keyNamed(name)] = &kinds.Object{Key: keyNamed(name), UID: "uid-" + name, Generation: generation}
}

// wrong has an object a finding.
func (r *rig) wrong(name string) {
	r.findings = append(r.findings, diag.Diagnostic{Severity: diag.Error, Code: "X", Object: "VirtualService a/" + name, Message: "wrong"})
}

// route is a VirtualService of generation 3, with a message in its status or without.
func route(version, name, revision string, message bool) *unstructured.Unstructured {
	meta := map[string]any{"namespace": "a", "name": name, "uid": "uid-" + name, "generation": int64(3)}
	if revision != "" {
		meta["labels"] = map[string]any{"istio.io/rev": revision}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "networking.istio.io/" + version, "kind": "VirtualService", "metadata": meta}}
	if message {
		u.Object["status"] = map[string]any{messages: []any{map[string]any{"level": "ERROR"}}}
	}
	return u
}

// synced syncs, and returns how many statuses were written.
func (r *rig) synced(ok bool) int {
	r.t.Helper()
	r.client.ClearActions()
	if got := r.sync(context.Background()); got != ok {
		r.t.Errorf("sync: %v, want %v", got, ok)
	}
	n := 0
	for _, a := range r.client.Actions() {
		if a.GetVerb() == "patch" {
			n++
		}
	}
	return n
}

// messagesOf returns how many messages the status of a VirtualService has.
func (r *rig) messagesOf(version, name string) int {
	r.t.Helper()
	u, err := r.client.Resource(schema.GroupVersionResource{Group: "networking.istio.io", Version: version, Resource: "virtualservices"}).
		Namespace("a").Get(context.Background(), name, metav1.GetOptions{})
	must.Succeed(r.t, err)
	all, _, _ := unstructured.NestedSlice(u.Object, "status", messages)
	return len(all)
}

// A new leader takes away what one before wrote about objects that count and have no findings. It leaves those that do
// not count alone, and does not write about them either. It uses the version that is served.
func TestWriterTakesOver(t *testing.T) {
	for _, version := range kinds.VirtualService.Versions {
		r := newRig(t, version, route(version, "mended", "", true), route(version, "other", "canary", true), route(version, "others", "canary", false))
		r.analysed("mended", 3)
		r.wrong("others")
		if n := r.synced(true); n != 1 {
			t.Errorf("%s: %d statuses are written, want 1", version, n)
		}
		if a, b, c := r.messagesOf(version, "mended"), r.messagesOf(version, "other"), r.messagesOf(version, "others"); a != 0 || b != 1 || c != 0 {
			t.Errorf("%s: messages %d, %d, %d", version, a, b, c)
		}
	}
}

// An object that has changed since it was analysed, or that is another one by now, is written after the next analysis.
// One whose last version cannot be used is written, for the findings are about that one.
func TestWriterIsStale(t *testing.T) {
	r := newRig(t, "v1", route("v1", "x", "", false), route("v1", "y", "", true))
	r.wrong("x")
	for _, o := range []*kinds.Object{{UID: "uid-x", Generation: 2}, {UID: "before", Generation: 3}} {
		r.objects[keyNamed("x")] = o
		if n := r.synced(true); n != 0 {
			t.Errorf("as of %v, %d statuses are written", o, n)
		}
	}
	r.analysed("x", 3)
	r.analysed("y", 2)
	if n := r.synced(true); n != 1 || r.messagesOf("v1", "x") != 1 {
		t.Errorf("%d statuses are written, want that of x", n)
	}
	r.analysed("y", 3)
	if n := r.synced(true); n != 1 || r.messagesOf("v1", "y") != 0 {
		t.Errorf("%d statuses are written, want that of y", n)
	}
	r.analysed("x", 2)
	r.findings[0].Message = "wrong now"
	r.findings = append(r.findings, diag.Diagnostic{Severity: diag.Error, Code: "Unusable", Object: "VirtualService a/x"})
	if n := r.synced(true); n != 1 || r.messagesOf("v1", "x") != 2 {
		t.Errorf("%d statuses are written, want that of x, which cannot be used", n)
	}
	if r.log.Len() > 0 {
		t.Errorf("log: %s", r.log.String())
	}
}

// What is refused, and what is gone, is not tried again, and is logged once of a kind. Other failures are tried again.
func TestWriterIsRefused(t *testing.T) {
	resource := schema.GroupResource{Group: "networking.istio.io", Resource: "virtualservices"}
	for _, err := range []error{
		apierrors.NewForbidden(resource, "x", nil), apierrors.NewInvalid(schema.GroupKind{Kind: "VirtualService"}, "x", nil), apierrors.NewInternalError(fmt.Errorf("away")),
	} {
		again := apierrors.IsInternalError(err)
		r := newRig(t, "v1", route("v1", "x", "", false), route("v1", "y", "", false))
		for _, name := range []string{"x", "y", "gone"} {
			r.analysed(name, 3)
			r.wrong(name)
		}
		r.refuse("patch", err)
		if n := r.synced(!again); n != 2 {
			t.Errorf("%v: %d statuses are written, want 2 attempts", err, n)
		}
		if n := r.synced(!again); n != 0 != again {
			t.Errorf("%v: %d are written at the next attempt", err, n)
		}
		gets := 0
		for _, a := range r.client.Actions() {
			if g, ok := a.(clienttesting.GetAction); ok && a.GetVerb() == "get" && g.GetName() == "gone" {
				gets++
			}
		}
		if gets > 0 {
			t.Errorf("%v: what is gone is read again", err)
		}
		if n := strings.Count(r.log.String(), "\n"); n != 1 {
			t.Errorf("%v: log: %s", err, r.log.String())
		}
		if !apierrors.IsForbidden(err) {
			continue
		}
		r.refuse("list", err)
		r.log.Reset()
		r.begin()
		r.synced(true)
		if !strings.Contains(r.log.String(), "cannot list virtualservices") || r.written == nil {
			t.Errorf("no word of the kind that may not be listed: %s", r.log.String())
		}
	}
}

// While findings are left out, no status comes to say that nothing is wrong.
func TestWriterKnowsThatThereIsMore(t *testing.T) {
	r := newRig(t, "v1", route("v1", "x", "", true), route("v1", "y", "", false))
	r.analysed("x", 3)
	r.analysed("y", 3)
	r.wrong("y")
	r.more = true
	if n := r.synced(true); n != 1 || r.messagesOf("v1", "x") != 1 || r.messagesOf("v1", "y") != 1 {
		t.Errorf("%d statuses are written, want that of y alone", n)
	}
	r.findings, r.more = nil, false
	if n := r.synced(true); n != 2 || r.messagesOf("v1", "x") != 0 || r.messagesOf("v1", "y") != 0 {
		t.Errorf("%d statuses are written, want both", n)
	}
}

// The pause after failures doubles up to a bound, and ends with a success.
func TestBackoff(t *testing.T) {
	pause := time.Duration(0)
	var got []string
	for range 10 {
		pause = backoff(pause, false)
		got = append(got, pause.String())
	}
	if want := "2s 4s 8s 16s 32s 1m4s 2m8s 4m16s 5m0s 5m0s"; strings.Join(got, " ") != want || backoff(pause, true) != 0 {
		t.Errorf("%v, then %v", got, backoff(pause, true))
	}
}

// What is found without an analysis, and what is mended so, is written within 10 seconds.
func TestRunLooksByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "v1", route("v1", "x", "", false))
		var found atomic.Pointer[[]diag.Diagnostic]
		found.Store(&[]diag.Diagnostic{})
		r.o.Findings = func() ([]diag.Diagnostic, bool) { return *found.Load(), true }
		r.analysed("x", 3)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx)
		}()
		r.Wake()
		time.Sleep(time.Second)
		for _, list := range [][]diag.Diagnostic{{{Severity: diag.Error, Code: "Unusable", Object: "VirtualService a/x"}}, nil} {
			found.Store(&list)
			time.Sleep(every)
			synctest.Wait()
			if n := r.messagesOf("v1", "x"); n != len(list) {
				t.Errorf("%d messages, want %d", n, len(list))
			}
		}
		stop()
		<-done
	})
}

// Before the first analysis nothing is taken away.
func TestRunWaitsForAnalysis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "v1", route("v1", "x", "", true))
		r.analysed("x", 3)
		r.client.ClearActions()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx)
		}()
		time.Sleep(time.Hour)
		if n := len(r.client.Actions()); n > 0 {
			t.Errorf("%d requests before the first analysis", n)
		}
		r.Wake()
		time.Sleep(time.Second)
		if r.messagesOf("v1", "x") > 0 {
			t.Error("nothing is written after it")
		}
		stop()
		<-done
	})
}
