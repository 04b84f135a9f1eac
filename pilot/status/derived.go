package status

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// DerivedOptions of a DerivedWriter.
type DerivedOptions struct {
	Client   dynamic.Interface             // it refuses writes of those that do not lead
	Statuses func() []*derive.Status       // what stages derive, with what the objects have at present
	Object   func(kinds.Key) *kinds.Object // an object that counts, or nil
	Rate     float64                       // objects that are written in a second at most
	Interval time.Duration                 // between two looks, at least
	Logger   *slog.Logger
}

// DerivedWriter writes the statuses that stages derive.
type DerivedWriter struct {
	o    DerivedOptions
	wake chan struct{} // has one message at most

	// Of Run.
	limit   *rate.Limiter
	sent    map[kinds.Key]sent
	settled map[*derive.Status]bool // objects have them already: statuses are frozen, so they are compared once
	refused map[*kinds.Kind]bool    // what was refused, and is logged
}

// sent is what was written last of an object, which has not come back from the API server while object is the same.
type sent struct {
	object *kinds.Object
	value  map[string]any
}

// NewDerived makes a DerivedWriter that does not run.
func NewDerived(o DerivedOptions) *DerivedWriter {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Rate, o.Interval = cmp.Or(o.Rate, 20), cmp.Or(o.Interval, 500*time.Millisecond)
	return &DerivedWriter{o: o, wake: make(chan struct{}, 1)}
}

// Wake has the statuses looked at, and returns at once. It is called after each commit.
func (w *DerivedWriter) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run writes what differs, until ctx ends.
func (w *DerivedWriter) Run(ctx context.Context) {
	w.limit, w.sent, w.refused = rate.NewLimiter(rate.Limit(w.o.Rate), 1), map[kinds.Key]sent{}, map[*kinds.Kind]bool{}
	w.settled = map[*derive.Status]bool{}
	var failed time.Duration
	for ctx.Err() == nil {
		failed = backoff(failed, w.sync(ctx))
		var again <-chan time.Time
		if failed > 0 {
			again = time.After(failed)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-again:
		}
		select {
		case <-ctx.Done():
		case <-time.After(w.o.Interval): // changes that come together are written together
		}
	}
}

// sync writes what differs. It reports whether nothing has to be tried again.
func (w *DerivedWriter) sync(ctx context.Context) bool {
	done := true
	before := w.sent
	w.sent = make(map[kinds.Key]sent, len(before))
	list := w.o.Statuses()
	w.forget(list)
	for _, s := range list {
		if w.settled[s] {
			continue
		}
		o := w.o.Object(s.Of)
		if o == nil || o.Position != "" || o.Relayed || o.Cluster != "" {
			continue // no object of this API server
		}
		if reflect.DeepEqual(s.Value, s.Current) {
			w.settled[s] = true
			continue
		}
		next := sent{o, s.Value}
		if last, known := before[s.Of]; known && last.object == o && reflect.DeepEqual(last.value, s.Value) {
			w.sent[s.Of] = last
			continue
		}
		if ctx.Err() != nil || w.limit.Wait(ctx) != nil {
			return true // it ends
		}
		err := w.write(ctx, s)
		switch {
		case err == nil || apierrors.IsNotFound(err):
			w.sent[s.Of] = next
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			w.sent[s.Of] = next // it would be refused again
			w.refusal(s.Of.Kind, err)
		case ctx.Err() == nil:
			done = false
			w.refusal(s.Of.Kind, err)
		}
	}
	return done
}

// forget drops the settled statuses that are no more, once there are as many of them as of others.
func (w *DerivedWriter) forget(list []*derive.Status) {
	if len(w.settled) <= 2*len(list)+64 {
		return
	}
	settled := make(map[*derive.Status]bool, len(list))
	for _, s := range list {
		if w.settled[s] {
			settled[s] = true
		}
	}
	w.settled = settled
}

// refusal logs an error, the first of each kind.
func (w *DerivedWriter) refusal(k *kinds.Kind, err error) {
	if !w.refused[k] {
		w.refused[k] = true
		w.o.Logger.Warn("a status cannot be written: no more is logged of this kind", "kind", k.Name, "err", err)
	}
}

// transitionTime is the field of a condition that says when it took its status.
const transitionTime = "lastTransitionTime"

// stamped returns a value in which each condition without a time has one.
func stamped(v any, now time.Time) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, child := range v {
			out[k] = stamped(child, now)
		}
		if at, is := v[transitionTime]; is && at == nil {
			out[transitionTime] = now.UTC().Format(time.RFC3339)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, child := range v {
			out[i] = stamped(child, now)
		}
		return out
	}
	return v
}

// write sends the fields of a status. It sets the time of conditions that have none.
func (w *DerivedWriter) write(ctx context.Context, s *derive.Status) error {
	text, err := json.Marshal(map[string]any{"status": stamped(s.Value, time.Now())})
	if err != nil {
		return err
	}
	k := s.Of.Kind
	client := w.o.Client.Resource(schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Plural}).Namespace(s.Of.Namespace)
	_, err = client.Patch(ctx, s.Of.Name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: "pilot-discovery"}, "status")
	return err
}
