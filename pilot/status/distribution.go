package status

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// Progress says whether versions of objects are in force: a *progress.Tracker.
type Progress interface {
	Own(q progress.Question) progress.Answer                      // of this replica
	Ask(ctx context.Context, q progress.Question) progress.Answer // of all replicas
}

// Times and bounds of a Distribution.
const (
	// patience is how long a change may take until a status says that it is under way. Most changes take less, and cost
	// one write.
	patience = 500 * time.Millisecond
	// minLook and maxLook bound the time between two looks at an object that is not in force. It grows with the age of the
	// change, and with the number of such objects: lookEach is its part for each of them.
	minLook  = 50 * time.Millisecond
	maxLook  = 5 * time.Second
	lookEach = 20 * time.Millisecond
	// messagePause is the least time between two writes that differ only in messages.
	messagePause = 10 * time.Second
	// pageSize is the number of objects that are read, and reconciled, at a time when a term begins.
	pageSize = 50
	// pageLook is the time between two looks at whether the objects of a page are reconciled.
	pageLook = 100 * time.Millisecond
	// returnTime is how long the proxies of an earlier process may take to connect to this one. Before that, nothing is
	// said about objects that have not changed since the start.
	returnTime = 60 * time.Second
)

// Distribution is a reconciler of the conditions Reconciled, Reconciling and Stalled. A request names an object. A
// request without a name is for a kind: it finds the objects whose status does not say that they are in force.
type Distribution struct {
	writer
	world    DistributedWorld
	progress Progress
	host     Host
	started  time.Time

	// The fields below are owned by the goroutine that reconciles.
	listed     bool                     // the kinds have been requested in this term
	selections uint64                   // number of selections of namespaces when they were
	next       map[*kinds.Kind]string   // where the next page of a kind begins
	page       map[kinds.Key]struct{}   // objects of the last page that are not reconciled yet
	refused    map[kinds.Key]struct{}   // objects with a version that is not in force as it is written
	open       map[kinds.Key]*unsettled // objects that were changed and are not in force
}

// DistributedWorld is a World whose objects may appear when namespaces are selected.
type DistributedWorld interface {
	World
	Selections() uint64 // number of commits that selected or unselected namespaces
}

// Host is the server of a Distribution.
type Host interface {
	// ObjectFindings returns the findings about objects.
	ObjectFindings() []diag.Diagnostic
	// Notify adds requests to the queue of the reconciler.
	Notify(requests ...reconcile.Request)
}

// unsettled is an object whose status is followed until it is in force.
type unsettled struct {
	object  *kinds.Object // accepted version when it was last looked at; nil if there is none
	since   time.Time     // of the first look at this version
	said    outcome       // as last written, or found in the status
	at      int64         // generation that said is about; 0 if nothing is said yet
	written time.Time
}

// DistributionOptions configure a Distribution.
type DistributionOptions struct {
	World    DistributedWorld
	Progress Progress
	Host     Host
	Limit    *rate.Limiter // of writes; see NewLimit
}

// NewDistribution returns a Distribution.
func NewDistribution(o DistributionOptions) *Distribution {
	return &Distribution{
		world: o.World, progress: o.Progress, host: o.Host, writer: writer{limit: o.Limit}, started: time.Now(),
	}
}

// Kinds returns Istio's kinds.
func (*Distribution) Kinds() []*kinds.Kind { return (*Analysis)(nil).Kinds() }

// Begin begins a term.
func (r *Distribution) Begin(c client.Client, _ client.Reader) {
	r.begin(c)
	r.listed, r.next, r.page = false, map[*kinds.Kind]string{}, map[kinds.Key]struct{}{}
	r.refused, r.open = map[kinds.Key]struct{}{}, map[kinds.Key]*unsettled{}
}

// Resync returns the interval at which findings are read, because no change follows a version that is not used.
func (*Distribution) Resync() time.Duration { return 10 * time.Second }

// All returns the kinds at the beginning of a term and after a selection of namespaces, and objects that have become
// unusable.
func (r *Distribution) All() (list []reconcile.Request) {
	if n := r.world.Selections(); time.Since(r.started) >= returnTime && (!r.listed || n != r.selections) {
		r.listed, r.selections = true, n
		for _, k := range r.Kinds() {
			r.next[k] = ""
			list = append(list, Request(kinds.Key{Kind: k}))
		}
	}
	now := map[kinds.Key]struct{}{}
	for _, d := range r.host.ObjectFindings() {
		if d.File != "" || !config.IsUnusable(d) {
			continue
		}
		key, ok := keyNamed(d.Object)
		if !ok || elsewhere(key, r.world.Object) {
			continue
		}
		now[key] = struct{}{}
		if _, known := r.refused[key]; !known {
			list = append(list, Request(key))
		}
	}
	for key := range r.refused {
		if _, still := now[key]; !still {
			list = append(list, Request(key))
		}
	}
	r.refused = now
	return list
}

// Concerns reports whether an object of this key may have the conditions.
func (*Distribution) Concerns(key kinds.Key) bool {
	return key.Kind.Istio && key.Cluster == "" && !key.IsLastGood()
}

// Reconcile writes the conditions of an object, and follows it until it is in force.
func (r *Distribution) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := keyOf(request)
	if key.Name == "" {
		return r.list(ctx, key.Kind)
	}
	delete(r.page, key)
	return r.follow(ctx, key)
}

// follow looks at an object, and writes its conditions if it is time to.
func (r *Distribution) follow(ctx context.Context, key kinds.Key) (reconcile.Result, error) {
	o := r.world.Object(key)
	_, refused := r.refused[key]
	if o == nil && !refused || o != nil && (o.Position != "" || o.Relayed) {
		delete(r.open, key)
		return reconcile.Result{}, nil
	}
	x := r.open[key]
	if x == nil || x.object != o {
		fresh := &unsettled{object: o, since: time.Now()}
		if x != nil {
			fresh.said, fresh.at, fresh.written = x.said, x.at, x.written
		}
		x = fresh
		r.open[key] = x
	}
	again := reconcile.Result{RequeueAfter: r.pause(x)}
	own := r.progress.Own(progress.Question{Key: key})
	patient, said := time.Since(x.since) < patience, x.at == own.Generation && time.Since(x.written) < messagePause
	if own.Generation == 0 || !own.State.Final() && (patient || said) {
		return again, nil
	}
	a := r.progress.Ask(ctx, progress.Question{Key: key, Generation: own.Generation, UID: own.UID})
	now, ok := outcomeOf(&a)
	switch {
	case !ok: // a newer version follows
		return again, nil
	case now.reconciling != "" && patient:
		return again, nil
	case x.at == a.Generation && (x.said == now || said && x.said.reason == now.reason):
		return again, nil
	}
	result, err := r.do(ctx, key.Kind, func() error { return r.write(ctx, key, x, &a, now) })
	switch {
	case errors.Is(err, errStale):
		return again, nil
	case apierrors.IsNotFound(err): // it was deleted, and the World may have it still
		return reconcile.Result{RequeueAfter: limits.MaxBackoff}, nil
	case errors.Is(err, errForeign):
		delete(r.open, key)
		return reconcile.Result{}, nil
	case err != nil:
		return result, err
	case now.positive():
		delete(r.open, key)
		return reconcile.Result{}, nil
	}
	x.said, x.at, x.written = now, a.Generation, time.Now()
	return reconcile.Result{RequeueAfter: r.pause(x)}, nil
}

// pause returns the time until the next look at an object.
func (r *Distribution) pause(x *unsettled) time.Duration { return pauseOf(x.since, len(r.open)) }

// pauseOf returns the time until the next look at one of several objects that are not in force. since is the time of
// the first look at it.
func pauseOf(since time.Time, objects int) time.Duration {
	return max(minLook, min(time.Since(since)/8, maxLook), time.Duration(objects)*lookEach)
}

// write writes conditions with the version of an object that it reads, unless it has them. It returns errForeign if
// another control plane owns the object, and errStale if the answer is about another version.
func (r *Distribution) write(ctx context.Context, key kinds.Key, x *unsettled, a *progress.Answer, now outcome) error {
	u, version, err := r.get(ctx, key)
	switch {
	case err != nil:
		return err
	case !r.world.Accepts(u.GetNamespace(), u.GetLabels()):
		return errForeign
	case u.GetGeneration() != a.Generation, x.object != nil && x.object.UID != "" && x.object.UID != string(u.GetUID()):
		return errStale
	}
	status, _ := u.Object["status"].(map[string]any)
	if now.positive() && !a.Counted && holds(status, a.Generation) {
		return nil // it was in force before, and the number of proxies is not about a change
	}
	parts := conditionsPatch(u, now, time.Now())
	if parts == nil {
		return nil
	}
	return r.update(ctx, key, version, u, parts)
}

// list reconciles the objects of a kind that this revision owns and whose status does not say that they are in force,
// some at a time, so that they do not delay objects that change.
func (r *Distribution) list(ctx context.Context, k *kinds.Kind) (reconcile.Result, error) {
	if len(r.page) > 0 {
		return reconcile.Result{RequeueAfter: pageLook}, nil
	}
	page := &unstructured.UnstructuredList{}
	err := r.versions(k, func(version string) error {
		page.SetGroupVersionKind(schema.GroupVersionKind{Group: k.Group, Version: version, Kind: k.Name + "List"})
		return r.client.List(ctx, page, client.Limit(pageSize), client.Continue(r.next[k]))
	})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		r.next[k] = "" // what is in force already costs nothing
		return reconcile.Result{RequeueAfter: pageLook}, nil
	}
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	for i := range page.Items {
		u := &page.Items[i]
		key := kinds.Key{Kind: k, Namespace: u.GetNamespace(), Name: u.GetName()}
		status, _ := u.Object["status"].(map[string]any)
		if r.world.Accepts(key.Namespace, u.GetLabels()) && !holds(status, u.GetGeneration()) {
			r.page[key] = struct{}{}
		}
	}
	r.host.Notify(lists.Map(slices.Collect(maps.Keys(r.page)), Request)...)
	if r.next[k] = page.GetContinue(); r.next[k] == "" {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: pageLook}, nil
}
