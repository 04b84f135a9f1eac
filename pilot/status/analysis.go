package status

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
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
)

// World looks up objects.
type World interface {
	Object(key kinds.Key) *kinds.Object // an accepted object, or nil
	// Accepts reports whether this revision owns an Istio object in a namespace with these labels.
	Accepts(namespace string, labels map[string]string) bool
}

// Findings are the results of analyses.
type Findings interface {
	// Found returns the findings. all is false if some are left out.
	Found() (found []diag.Diagnostic, all bool)
	// Describe returns the name of a code in statuses.
	Describe(code string) Code
}

// Analysis is a reconciler of the findings in statuses. A request names an object. A request without a name is for a
// kind: it finds the objects with messages of an earlier leader.
type Analysis struct {
	writer
	world    World
	findings Findings
	analysed atomic.Bool // true after the first analysis of this process
	leaves   bool        // a Distribution writes observedGeneration

	// The fields below are owned by the goroutine that reconciles.
	listed      bool                 // the kinds have been requested in this term
	found       map[kinds.Key]wanted // wanted statuses
	complete    bool                 // found has all findings
	lastWritten map[kinds.Key]wanted // statuses as last written by this leader or an earlier one
	failed      map[kinds.Key]wanted // statuses that could not be written and back off
}

// NewAnalysis returns an Analysis.
func NewAnalysis(w World, f Findings, limit *rate.Limiter) *Analysis {
	return &Analysis{world: w, findings: f, writer: writer{limit: limit}}
}

// LeaveGeneration makes the Analysis write no observedGeneration, because a Distribution does: kstatus reads it as the
// generation that is in force. It is called before the first term.
func (r *Analysis) LeaveGeneration() { r.leaves = true }

// Analysed records an analysis. Nothing is written before the first one.
func (r *Analysis) Analysed() { r.analysed.Store(true) }

// Kinds returns Istio's kinds.
func (*Analysis) Kinds() (list []*kinds.Kind) {
	return lists.Filter(kinds.All(), func(k *kinds.Kind) bool { return k.Istio })
}

// Begin begins a term.
func (r *Analysis) Begin(c client.Client, _ client.Reader) {
	r.begin(c)
	r.listed, r.complete, r.found, r.lastWritten = false, false, nil, map[kinds.Key]wanted{}
	r.failed = map[kinds.Key]wanted{}
}

// Resync returns the interval at which the findings are read without an analysis, because an invalid object triggers
// none.
func (*Analysis) Resync() time.Duration { return 10 * time.Second }

// All reads the findings, and returns the objects whose statuses differ from the wanted ones.
func (r *Analysis) All() (list []reconcile.Request) {
	if !r.analysed.Load() {
		return nil
	}
	if !r.listed {
		r.listed = true
		for _, k := range r.Kinds() {
			list = append(list, Request(kinds.Key{Kind: k}))
		}
	}
	findings, all := r.findings.Found()
	r.found, r.complete = want(findings, r.world.Object, r.findings.Describe), all
	for _, keys := range []map[kinds.Key]wanted{r.found, r.lastWritten} {
		for key := range keys {
			n, due := r.due(key)
			if failed, is := r.failed[key]; due && !(is && failed.equal(n)) {
				list = append(list, Request(key))
			}
		}
	}
	return list
}

// due returns the wanted status of an object, and whether it differs from the last written one.
func (r *Analysis) due(key kinds.Key) (wanted, bool) {
	n, wrong := r.found[key]
	last, known := r.lastWritten[key]
	switch {
	case wrong:
		return n, !known || !last.equal(n)
	case !known || !r.complete: // it may have other findings
		return n, false
	case elsewhere(key, r.world.Object): // it was not analysed
		delete(r.lastWritten, key)
		return n, false
	}
	n.object = r.world.Object(key)
	return n, true
}

func (w wanted) equal(o wanted) bool {
	return w.object == o.object && w.summary == o.summary && reflect.DeepEqual(w.messages, o.messages)
}

// Reasons not to write a status. They are no failures.
var (
	errStale   = errors.New("another version than the one that was analysed") // another analysis follows
	errForeign = errors.New("it belongs to another control plane")
)

// Reconcile writes the wanted status of an object.
func (r *Analysis) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := keyOf(request)
	if key.Name == "" {
		return reconcile.Result{}, r.list(ctx, key.Kind)
	}
	delete(r.failed, key)
	n, due := r.due(key)
	if !due {
		return reconcile.Result{}, nil
	}
	stale := false
	result, err := r.do(ctx, key.Kind, func() error {
		err := r.write(ctx, key, n)
		if stale = errors.Is(err, errStale); stale || errors.Is(err, errForeign) {
			return nil
		}
		return err
	})
	switch {
	case apierrors.IsNotFound(err) && (n.object != nil || len(n.messages) > 0): // it was deleted, and the World has it still
		r.failed[key] = n
		return reconcile.Result{RequeueAfter: limits.MaxBackoff}, nil
	case client.IgnoreNotFound(err) != nil:
		r.failed[key] = n
	case stale: // it is written after the next analysis
	case len(n.messages) > 0:
		r.lastWritten[key] = n
	default:
		delete(r.lastWritten, key)
	}
	return result, client.IgnoreNotFound(err)
}

// write writes the status of one object with the version that it reads. It returns errForeign if another control plane
// owns the object, and errStale if the object has changed since its analysis.
func (r *Analysis) write(ctx context.Context, key kinds.Key, n wanted) error {
	u, version, err := r.get(ctx, key)
	switch {
	case err != nil:
		return err
	case !r.world.Accepts(u.GetNamespace(), u.GetLabels()):
		return errForeign
	case n.stale(u):
		return errStale
	}
	parts := patch(u, n, time.Now(), r.leaves)
	if parts == nil {
		return nil
	}
	return r.update(ctx, key, version, u, parts)
}

// list records the objects of a kind that this revision owns and whose status already has messages. If the API server
// does not have the kind, there are none.
func (r *Analysis) list(ctx context.Context, k *kinds.Kind) error {
	return client.IgnoreNotFound(r.versions(k, func(version string) error { return r.listVersion(ctx, k, version) }))
}

func (r *Analysis) listVersion(ctx context.Context, k *kinds.Kind, version string) error {
	for next := ""; ; {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(schema.GroupVersionKind{Group: k.Group, Version: version, Kind: k.Name + "List"})
		if err := r.client.List(ctx, page, client.Limit(500), client.Continue(next)); err != nil {
			return err
		}
		for i := range page.Items {
			u := &page.Items[i]
			key := kinds.Key{Kind: k, Namespace: u.GetNamespace(), Name: u.GetName()}
			status, _ := u.Object["status"].(map[string]any)
			if _, known := r.lastWritten[key]; !known && len(list(status, messages)) > 0 && r.world.Accepts(key.Namespace, u.GetLabels()) {
				r.lastWritten[key] = wanted{summary: "of an earlier leader"}
			}
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
