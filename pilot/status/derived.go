package status

import (
	"context"
	"reflect"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// Stages provides the statuses that stages derive.
type Stages interface {
	Statuses() []*derive.Status         // all
	Status(of kinds.Key) *derive.Status // nil if the object has none
	Object(key kinds.Key) *kinds.Object // an accepted object, or nil
}

// Derived is a reconciler of the statuses that stages derive. A request names an object.
type Derived struct {
	writer
	stages   Stages
	progress Progress                     // nil if Programmed does not depend on what proxies have acknowledged
	sent     map[kinds.Key]sent           // by object: last write, until the object comes back from the API server
	awaited  map[kinds.Key]awaitedGateway // by Gateway or ListenerSet that is not in force
}

// sent is a written status. While the object is unchanged, it has not come back from the API server.
type sent struct {
	object *kinds.Object
	value  map[string]any
}

// NewDerived returns a Derived. With p, which may be nil, Gateways and ListenerSets are Programmed once they are in
// force.
func NewDerived(s Stages, limit *rate.Limiter, p Progress) *Derived {
	return &Derived{stages: s, progress: p, writer: writer{limit: limit}}
}

// Kinds returns all kinds.
func (*Derived) Kinds() []*kinds.Kind { return kinds.All() }

// Begin begins a term.
func (r *Derived) Begin(c client.Client, _ client.Reader) {
	r.begin(c)
	r.sent, r.awaited = map[kinds.Key]sent{}, map[kinds.Key]awaitedGateway{}
}

// All returns the objects with a wanted status.
func (r *Derived) All() (list []reconcile.Request) {
	return lists.Map(r.stages.Statuses(), func(s *derive.Status) reconcile.Request { return Request(s.Of) })
}

// Reconcile writes the status of an object of this API server if it differs.
func (r *Derived) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := keyOf(request)
	s, o := r.stages.Status(key), r.stages.Object(key)
	if s == nil || o == nil || o.Position != "" || o.Relayed || o.Cluster != "" || reflect.DeepEqual(s.Value, s.Current) {
		delete(r.sent, key)
		delete(r.awaited, key)
		return reconcile.Result{}, nil
	}
	value, again := r.hold(ctx, s, o)
	last, known := r.sent[key]
	if value == nil || reflect.DeepEqual(value, s.Current) || known && last.object == o && reflect.DeepEqual(last.value, value) {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	result, err := r.do(ctx, key.Kind, func() error {
		return r.versions(key.Kind, func(version string) error {
			return r.patch(ctx, key, version, map[string]any{"status": stamped(value, time.Now())})
		})
	})
	if apierrors.IsNotFound(err) { // it was deleted, and the World has it still
		return reconcile.Result{RequeueAfter: limits.MaxBackoff}, nil
	}
	if err == nil {
		r.sent[key] = sent{o, value}
		result.RequeueAfter = again
	}
	return result, err
}

// transitionTime is the field of a condition with the time of its last change.
const transitionTime = "lastTransitionTime"

// stamped returns a copy in which each condition has a time.
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
