package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Options of a Writer.
type Options struct {
	Client dynamic.Interface // it refuses writes of those that do not lead
	// Findings returns what is found at present, and whether that is all.
	Findings func() (found []diag.Diagnostic, all bool)
	Object   func(kinds.Key) *kinds.Object // an object that counts, or nil
	// Counts reports whether an object of Istio's in that namespace, with those labels, counts. Others are not written.
	Counts   func(namespace string, labels map[string]string) bool
	Describe func(code string) Code // what a code is called
	Rate     float64                // objects that are written in a second at most
	Interval time.Duration          // between two looks at the findings, at least
	Logger   *slog.Logger
}

// Writer writes the findings of objects into their status.
type Writer struct {
	o      Options
	wake   chan struct{} // has one message at most
	looked atomic.Bool   // Wake was called: the objects were analysed

	// Of Run.
	limit   *rate.Limiter
	written map[kinds.Key]wanted   // what was written last, or is there from a leader before
	served  map[*kinds.Kind]string // the version by which a kind was read last
	refused map[string]bool        // what was refused, and is logged
}

// New makes a Writer that does not run.
func New(o Options) *Writer {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Rate, o.Interval = cmp.Or(o.Rate, 20), cmp.Or(o.Interval, 500*time.Millisecond)
	return &Writer{o: o, wake: make(chan struct{}, 1)}
}

// Wake has the findings looked at, and returns at once. It is called after each analysis. Before the first one nothing
// is written.
func (w *Writer) Wake() {
	w.looked.Store(true)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// How long after a failure the next attempt begins: at first, and at most. It doubles.
const (
	retryFirst = 2 * time.Second
	retryMax   = 5 * time.Minute
)

// every is how often the findings are looked at without a Wake: no analysis follows an object that cannot be used.
const every = 10 * time.Second

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	w.limit, w.written, w.served, w.refused = rate.NewLimiter(rate.Limit(w.o.Rate), 1), nil, map[*kinds.Kind]string{}, map[string]bool{}
	tick := time.NewTicker(every)
	defer tick.Stop()
	failed := time.Duration(0) // the pause after the last failure; 0: the last attempt did not fail
	for again := w.looked.Load(); ; again = failed > 0 {
		if !again {
			select {
			case <-ctx.Done():
				return
			case <-w.wake:
			case <-tick.C:
			}
		}
		pause := w.o.Interval
		if w.looked.Load() {
			failed = backoff(failed, w.sync(ctx))
			pause = max(pause, failed)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// backoff returns the pause after an attempt: 0 if it did not fail, else twice the one before, within bounds.
func backoff(before time.Duration, ok bool) time.Duration {
	if ok {
		return 0
	}
	return min(max(2*before, retryFirst), retryMax)
}

// Why a status is not written, which is no failure.
var (
	errStale   = errors.New("another version than the one that was analysed") // another analysis follows
	errForeign = errors.New("it does not count here")
)

// sync writes what differs. It reports whether nothing has to be tried again.
func (w *Writer) sync(ctx context.Context) bool {
	if w.written == nil {
		before, err := w.list(ctx)
		if err != nil {
			w.o.Logger.Warn("the statuses of objects cannot be read", "err", err)
			return false
		}
		w.written = before
	}
	found, all := w.o.Findings()
	next := want(found, w.o.Object, w.o.Describe)
	var due []kinds.Key
	for key, n := range next {
		if last, known := w.written[key]; !known || last.object != n.object || last.summary != n.summary || !reflect.DeepEqual(last.messages, n.messages) {
			due = append(due, key)
		}
	}
	for key := range w.written {
		if _, still := next[key]; still {
			continue
		}
		if elsewhere(key, w.o.Object) {
			delete(w.written, key) // it was not judged
			continue
		}
		if all { // else there may be findings about it
			due = append(due, key)
		}
	}
	slices.SortFunc(due, func(a, b kinds.Key) int { return cmp.Compare(a.String(), b.String()) })
	done := true
	for _, key := range due {
		if w.limit.Wait(ctx) != nil {
			return true // it ends
		}
		n, wrong := next[key]
		if !wrong {
			n.object = w.o.Object(key)
		}
		err := w.write(ctx, key, n)
		switch {
		case ctx.Err() != nil:
			return true
		case errors.Is(err, errStale):
			continue
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			w.refusal("write the status of", key.Kind, err) // it would be refused again
		case err != nil && !errors.Is(err, errForeign) && !apierrors.IsNotFound(err):
			done = false
			if !apierrors.IsConflict(err) {
				w.refusal("write the status of", key.Kind, err)
			}
			continue
		}
		if wrong {
			w.written[key] = n
		} else {
			delete(w.written, key)
		}
	}
	return done
}

// refusal logs an error, the first of each kind.
func (w *Writer) refusal(verb string, k *kinds.Kind, err error) {
	if what := verb + " " + k.Plural + "." + k.Group; !w.refused[what] {
		w.refused[what] = true
		w.o.Logger.Warn("this server cannot "+what+": no more is logged of it", "kind", k.Name, "err", err)
	}
}

func (w *Writer) resource(k *kinds.Kind, version string) dynamic.NamespaceableResourceInterface {
	return w.o.Client.Resource(schema.GroupVersionResource{Group: k.Group, Version: version, Resource: k.Plural})
}

// get reads an object, by the version that is known to be served or else by the first one by which it is found. It
// returns the client of that version too.
func (w *Writer) get(ctx context.Context, key kinds.Key) (*unstructured.Unstructured, dynamic.ResourceInterface, error) {
	versions := key.Kind.Versions
	if v, known := w.served[key.Kind]; known {
		versions = []string{v}
	}
	var missing error
	for _, v := range versions {
		client := w.resource(key.Kind, v).Namespace(key.Namespace)
		u, err := client.Get(ctx, key.Name, metav1.GetOptions{})
		if err == nil {
			w.served[key.Kind] = v
			return u, client, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, nil, err
		}
		missing = err
	}
	delete(w.served, key.Kind) // the version may be gone
	return nil, nil, missing
}

// write brings the status of one object up to date, by the version that it reads. It returns errForeign for one that
// does not count, and errStale for one that has changed since it was analysed.
func (w *Writer) write(ctx context.Context, key kinds.Key, n wanted) error {
	u, client, err := w.get(ctx, key)
	switch {
	case err != nil:
		return err
	case !w.o.Counts(u.GetNamespace(), u.GetLabels()):
		return errForeign
	case n.stale(u):
		return errStale
	}
	parts := patch(u, n, time.Now())
	if parts == nil {
		return nil
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": u.GetResourceVersion()}, "status": parts})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, key.Name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: "pilot-discovery"}, "status")
	return err
}

// list returns the objects that count and whose status has messages already. A kind that may not be listed is left out.
func (w *Writer) list(ctx context.Context) (map[kinds.Key]wanted, error) {
	out := map[kinds.Key]wanted{}
	for _, k := range kinds.All() {
		if !k.Istio {
			continue
		}
		err := w.pages(ctx, k, func(u *unstructured.Unstructured) {
			if status, _ := u.Object["status"].(map[string]any); len(list(status, messages)) > 0 && w.o.Counts(u.GetNamespace(), u.GetLabels()) {
				out[kinds.Key{Kind: k, Namespace: u.GetNamespace(), Name: u.GetName()}] = wanted{summary: "of a leader before"}
			}
		})
		switch {
		case apierrors.IsForbidden(err):
			w.refusal("list", k, err)
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", k.Plural, err)
		}
	}
	return out, nil
}

// pages calls fn for all objects of a kind, by the first version that is served; if none is, there are none.
func (w *Writer) pages(ctx context.Context, k *kinds.Kind, fn func(*unstructured.Unstructured)) error {
versions:
	for _, v := range k.Versions {
		for next := ""; ; {
			page, err := w.resource(k, v).List(ctx, metav1.ListOptions{Limit: 500, Continue: next})
			if apierrors.IsNotFound(err) {
				continue versions
			}
			if err != nil {
				return err
			}
			w.served[k] = v
			for i := range page.Items {
				fn(&page.Items[i])
			}
			if next = page.GetContinue(); next == "" {
				return nil
			}
		}
	}
	return nil
}
