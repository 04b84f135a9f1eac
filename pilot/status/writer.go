package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Options of a Writer.
type Options struct {
	Client   dynamic.Interface             // it refuses writes of those that do not lead
	Findings func() []diag.Diagnostic      // at present
	Object   func(kinds.Key) *kinds.Object // an object that counts, or nil
	Describe func(code string) Code        // what a code is called
	Rate     float64                       // objects that are written in a second at most
	Interval time.Duration                 // between two looks at the findings, at least
	Logger   *slog.Logger
}

// Writer writes the findings of objects into their status.
type Writer struct {
	o    Options
	wake chan struct{} // has one message at most

	// Of Run.
	limit   *rate.Limiter
	written map[kinds.Key]wanted // what was written last, or is there from a leader before
	refused map[string]bool      // plurals of which a refusal is logged
}

// New makes a Writer that does not run.
func New(o Options) *Writer {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Rate, o.Interval = cmp.Or(o.Rate, 20), cmp.Or(o.Interval, 500*time.Millisecond)
	return &Writer{o: o, wake: make(chan struct{}, 1)}
}

// Wake has the findings looked at, and returns at once.
func (w *Writer) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// retry is how long after a write that failed the next one is tried.
const retry = 2 * time.Second

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	w.limit, w.written, w.refused = rate.NewLimiter(rate.Limit(w.o.Rate), 1), nil, map[string]bool{}
	w.Wake()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		pause := w.o.Interval
		if !w.sync(ctx) {
			w.Wake()
			pause = max(pause, retry)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// sync writes what differs. It reports whether nothing is left to be written.
func (w *Writer) sync(ctx context.Context) bool {
	if w.written == nil {
		before, err := w.list(ctx)
		if err != nil {
			w.o.Logger.Warn("the statuses of objects cannot be read", "err", err)
			return false
		}
		w.written = before
	}
	next := want(w.o.Findings(), w.o.Object, w.o.Describe)
	var due []kinds.Key
	for key, n := range next {
		if last, known := w.written[key]; !known || last.object != n.object || last.summary != n.summary || !reflect.DeepEqual(last.messages, n.messages) {
			due = append(due, key)
		}
	}
	for key := range w.written {
		if _, still := next[key]; !still {
			due = append(due, key)
		}
	}
	slices.SortFunc(due, func(a, b kinds.Key) int { return cmp.Compare(a.String(), b.String()) })
	done := true
	for _, key := range due {
		if w.limit.Wait(ctx) != nil {
			return true // it ends
		}
		n, wanted := next[key]
		err := w.write(ctx, key, n)
		switch {
		case ctx.Err() != nil:
			return true
		case err != nil && !apierrors.IsNotFound(err):
			done = false
			if !apierrors.IsConflict(err) && !w.refused[key.Kind.Plural] {
				w.refused[key.Kind.Plural] = true
				w.o.Logger.Warn("the status of an object cannot be written: no more is logged of its kind", "kind", key.Kind.Name, "ns", key.Namespace, "name", key.Name, "err", err)
			}
		case wanted && err == nil:
			w.written[key] = n
		default:
			delete(w.written, key)
		}
	}
	return done
}

func (w *Writer) resource(k *kinds.Kind) dynamic.NamespaceableResourceInterface {
	return w.o.Client.Resource(schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Plural})
}

// write brings the status of one object up to date, by the version that it reads.
func (w *Writer) write(ctx context.Context, key kinds.Key, n wanted) error {
	client := w.resource(key.Kind).Namespace(key.Namespace)
	u, err := client.Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return err
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

// list returns the objects whose status has messages already.
func (w *Writer) list(ctx context.Context) (map[kinds.Key]wanted, error) {
	out := map[kinds.Key]wanted{}
	for _, k := range kinds.All() {
		if !k.Istio {
			continue
		}
		for next := ""; ; {
			page, err := w.resource(k).List(ctx, metav1.ListOptions{Limit: 500, Continue: next})
			if apierrors.IsNotFound(err) { // there is no such kind
				break
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", k.Plural, err)
			}
			for _, u := range page.Items {
				if status, _ := u.Object["status"].(map[string]any); len(list(status, messages)) > 0 {
					out[kinds.Key{Kind: k, Namespace: u.GetNamespace(), Name: u.GetName()}] = wanted{summary: "of a leader before"}
				}
			}
			if next = page.GetContinue(); next == "" {
				break
			}
		}
	}
	return out, nil
}
