package status

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"reflect"
	"slices"
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
	Client dynamic.Interface // it refuses writes of those that do not lead
	// Statuses returns what stages derive, with what the objects have at present: what has changed since its last call,
	// nil where no status is wanted any more; or all.
	Statuses func(all bool) map[kinds.Key]*derive.Status
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
	all     bool                         // every status has been looked at
	open    map[kinds.Key]*derive.Status // that objects do not have, as far as is known
	sent    map[kinds.Key]sent           // of these
	refused map[*kinds.Kind]bool         // what was refused, and is logged
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
	w.begin(rate.Limit(w.o.Rate))
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

func (w *DerivedWriter) begin(limit rate.Limit) {
	w.limit, w.all, w.open = rate.NewLimiter(limit, 1), false, map[kinds.Key]*derive.Status{}
	w.sent, w.refused = map[kinds.Key]sent{}, map[*kinds.Kind]bool{}
}

// sync writes what differs, and looks at nothing that objects are known to have. It reports whether nothing has to be
// tried again.
func (w *DerivedWriter) sync(ctx context.Context) bool {
	for key, s := range w.o.Statuses(!w.all) {
		if w.open[key] = s; s == nil {
			w.settle(key)
		}
	}
	w.all = true
	done := true
	for _, key := range slices.SortedFunc(maps.Keys(w.open), func(a, b kinds.Key) int { return cmp.Compare(a.String(), b.String()) }) {
		s := w.open[key]
		o := w.o.Object(key)
		if o == nil || o.Position != "" || o.Relayed || o.Cluster != "" { // no object of this API server
			w.settle(key)
			continue
		}
		if reflect.DeepEqual(s.Value, s.Current) {
			w.settle(key)
			continue
		}
		next := sent{o, s.Value}
		if last, known := w.sent[key]; known && last.object == o && reflect.DeepEqual(last.value, s.Value) {
			continue
		}
		if ctx.Err() != nil || w.limit.Wait(ctx) != nil {
			return true // it ends
		}
		err := w.write(ctx, s)
		switch {
		case err == nil || apierrors.IsNotFound(err):
			w.sent[key] = next
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			w.sent[key] = next // it would be refused again
			w.refusal(key.Kind, err)
		case ctx.Err() == nil:
			done = false
			w.refusal(key.Kind, err)
		}
	}
	return done
}

// settle is called where nothing has to be written of an object until its status changes.
func (w *DerivedWriter) settle(key kinds.Key) {
	delete(w.open, key)
	delete(w.sent, key)
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
