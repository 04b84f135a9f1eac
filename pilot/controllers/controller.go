package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	controllercache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// Reconciler is a reconciler of controller-runtime with the methods that a Controller needs. A request names an object,
// or something else that is reconciled in the same way.
//
// An error of Reconcile is a finding, and the request backs off. If the result has a RequeueAfter, the request is
// repeated after that time instead. A conflict becomes a finding after maxConflicts in a row.
type Reconciler interface {
	reconcile.Reconciler
	// Kinds returns the kinds that are read or written.
	Kinds() []*kinds.Kind
	// Watches returns an object of each watched kind, *unstructured.Unstructured or *metav1.PartialObjectMetadata, and
	// which objects of the kind are watched. Without a Transform, metadata.managedFields is removed.
	Watches() map[client.Object]controllercache.ByObject
	// Requests returns the requests for an event of a watched object. It must not modify the object.
	Requests(ctx context.Context, object client.Object) []reconcile.Request
	// All returns the requests that do not belong to watched objects.
	All() []reconcile.Request
	// Begin is called at the beginning of each term, before Reconcile and Requests. The client reads from the API
	// server, and the reader from the cache of watched objects.
	Begin(c client.Client, watched client.Reader)
	// Finding describes a request that failed with err. The default message is the text of err.
	Finding(request reconcile.Request, err error) diag.Diagnostic
	// Optional method ReadFailed(err error) is called after a failed list or watch.
	// Optional method Start, of a manager.Runnable, is called once in each term, after Begin.
	// Optional method Resync() time.Duration returns the interval at which everything is reconciled again.
}

// Controller runs a Reconciler in each term. Its methods are safe for concurrent use.
type Controller struct {
	name       string
	codeUnread string
	reconciler Reconciler
	logger     *slog.Logger
	pauses     pauses
	backoff    backoff
	watched    controllercache.Cache // cache of the term

	mu         sync.Mutex
	queue      workqueue.TypedRateLimitingInterface[reconcile.Request] // queue of the term; nil between terms
	problems   map[reconcile.Request]diag.Diagnostic                   // by request whose last reconcile failed
	conflicts  map[reconcile.Request]int                               // consecutive conflicts by request
	readErrors map[read]readError                                      // errors of the last list and the last watch of each informer
	informers  int                                                     // number of informers made
}

// read is a way to read a kind. Watches may fail while lists succeed, and a kind has an informer for each namespace if
// only some are watched.
type read struct {
	verb, kind string
	informer   int
}

// everything is the request to reconcile everything.
var everything reconcile.Request

// New returns a Controller for a Manager. name is the name of the reconciled objects, such as Gateway; metrics have it
// in lower case. codeUnread is the code of findings about kinds that cannot be read.
func New(name, codeUnread string, r Reconciler, logger *slog.Logger) *Controller {
	c := &Controller{name: name, codeUnread: codeUnread, reconciler: r, logger: logger}
	c.end()
	return c
}

// Notify adds requests to the queue. It does nothing between terms, because a term begins with everything.
func (c *Controller) Notify(requests ...reconcile.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue == nil {
		return
	}
	for _, r := range requests {
		c.queue.Add(r) // merges equal ones
	}
}

// NotifyAll adds the request to reconcile everything to the queue.
func (c *Controller) NotifyAll() { c.Notify(everything) }

// begin adds the Controller to the manager of a term. It watches objects of some namespaces, or of all if the list is
// empty.
func (c *Controller) begin(m manager.Manager, writer client.Client, namespaces []string) error {
	watches := c.reconciler.Watches()
	var watched map[string]controllercache.Config
	for _, namespace := range namespaces {
		lists.Put(&watched, namespace, controllercache.Config{})
	}
	var err error
	c.watched, err = controllercache.New(m.GetConfig(), controllercache.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(), ByObject: watches,
		DefaultNamespaces: watched, // of kinds with namespaces
		DefaultTransform:  controllercache.TransformStripManagedFields(), ReaderFailOnMissingInformer: true, NewInformer: c.informer,
		DefaultWatchErrorHandler: func(context.Context, *cache.Reflector, error) {}, // informer records the error
	})
	if err != nil {
		return fmt.Errorf("%s: make the cache: %w", c.name, err)
	}
	if err := m.Add(c.watched); err != nil {
		return err
	}
	c.reconciler.Begin(writer, c.watched)
	if r, ok := c.reconciler.(manager.Runnable); ok {
		if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			return c.contained(func() error { return r.Start(ctx) })
		})); err != nil {
			return err
		}
	}
	runs, err := controller.New(strings.ToLower(c.name), m, controller.Options{
		Reconciler: reconcile.Func(c.reconcile), RateLimiter: c.backoff,
		LogConstructor: func(*reconcile.Request) logr.Logger { return logr.Discard() }, // note logs errors
	})
	if err != nil {
		return err
	}
	for object := range watches {
		if err := runs.Watch(source.Kind(c.watched, object, handler.EnqueueRequestsFromMapFunc(c.requests))); err != nil {
			return err
		}
	}
	return runs.Watch(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		c.mu.Lock()
		c.queue = queue
		c.mu.Unlock()
		c.NotifyAll()
		return nil
	}))
}

// contained calls f, and turns a panic into an error.
func (c *Controller) contained(f func() error) (err error) {
	if p := safe.Do(c.name, func() { err = f() }); p != nil {
		c.logger.Error("recovered from a panic", "err", p, "stack", string(p.(*safe.Panic).Stack))
		return p
	}
	return err
}

// requests returns the requests for an event of a watched object.
func (c *Controller) requests(ctx context.Context, object client.Object) (list []reconcile.Request) {
	_ = c.contained(func() error {
		list = c.reconciler.Requests(ctx, object)
		return nil
	})
	return list
}

// end drops the state of a term.
func (c *Controller) end() {
	c.pauses.reset()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue, c.backoff = nil, newBackoff()
	c.problems, c.conflicts, c.readErrors = map[reconcile.Request]diag.Diagnostic{}, map[reconcile.Request]int{}, map[read]readError{}
}

// informer returns an informer that records whether its kind can be read.
func (c *Controller) informer(
	lw cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers,
) cache.SharedIndexInformer {
	from := cache.ToListerWatcherWithContext(lw)
	c.mu.Lock()
	c.informers++
	of := read{kind: object.GetObjectKind().GroupVersionKind().Kind, informer: c.informers}
	c.mu.Unlock()
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			asked, cancel := context.WithTimeoutCause(ctx, answerTimeout, errUnanswered)
			defer cancel()
			list, err := from.ListWithContext(asked, o)
			c.noteRead(ctx, of.by("list"), cmp.Or(unanswered(asked), err))
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			asked, cancel := context.WithCancelCause(ctx)
			late := time.AfterFunc(answerTimeout, func() { cancel(errUnanswered) })
			w, err := from.WatchWithContext(asked, o)
			late.Stop()
			c.noteRead(ctx, of.by("watch"), cmp.Or(unanswered(asked), err))
			if err != nil {
				cancel(nil)
				return nil, err
			}
			if o.SendInitialEvents != nil {
				c.noteRead(ctx, of.by("list"), nil) // the watch begins with the list
			}
			return stream{w, cancel}, nil
		},
	}, object, resync, indexers)
}

// answerTimeout is how long an API server may take to answer a list or a watch: as long as one itself allows.
const answerTimeout = time.Minute

var errUnanswered = errors.New("the API server takes requests and does not answer")

// unanswered returns errUnanswered if it has ended a context.
func unanswered(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, errUnanswered) {
		return err
	}
	return nil
}

// stream is a watch whose context ends with it.
type stream struct {
	watch.Interface
	cancel context.CancelCauseFunc
}

func (s stream) Stop() {
	s.Interface.Stop()
	s.cancel(nil)
}

// readError is why a kind cannot be read.
type readError struct {
	text     string
	unserved bool // the API server does not serve the kind
}

// by returns the way to read the same kind by another verb.
func (r read) by(verb string) read {
	r.verb = verb
	return r
}

// noteRead records whether a kind can be listed or watched, and logs a new error.
func (c *Controller) noteRead(ctx context.Context, of read, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.IsInvalid(err) { // the API server cannot stream lists; client-go falls back to a plain list
		return
	}
	var text string
	if err != nil {
		text = withoutURL(err)
	}
	c.mu.Lock()
	known := c.readErrors[of.by("list")].text == text || c.readErrors[of.by("watch")].text == text
	delete(c.readErrors, of)
	if err != nil {
		c.readErrors[of] = readError{text, apierrors.IsNotFound(err)}
	}
	c.mu.Unlock()
	if err == nil {
		return
	}
	if r, ok := c.reconciler.(interface{ ReadFailed(err error) }); ok {
		r.ReadFailed(err)
	}
	if !known {
		c.logger.Warn("failed to list and watch objects", "kind", of.kind, "err", text)
	}
}

// withoutURL returns the text of an error without the URL, which differs between requests.
func withoutURL(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return err.Error()
}

// errUndone is the error of an object that another client changes back each time.
var errUndone = errors.New("another client undoes what this server writes")

// lastPriority is the priority of a request that has failed: all others come first.
const lastPriority = handler.LowPriority - 1

// reconcile passes a request to the Reconciler, and records the result. It postpones a request that has written
// recently.
func (c *Controller) reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request == everything {
		var requests []reconcile.Request
		err := c.contained(func() (err error) {
			requests, err = c.all(ctx)
			return err
		})
		c.Notify(requests...)
		var result reconcile.Result
		if r, ok := c.reconciler.(interface{ Resync() time.Duration }); ok && err == nil {
			result.RequeueAfter = r.Resync()
		}
		return result, err
	}
	if wait := c.pauses.wait(request); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	var result reconcile.Result
	did := &sent{}
	err := c.contained(func() (err error) {
		result, err = c.reconciler.Reconcile(context.WithValue(ctx, written{}, did), request)
		return err
	})
	if did.wrote {
		c.pauses.wrote(request, did.sum())
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled): // the term has ended
		return reconcile.Result{}, nil
	case errors.Is(err, leader.ErrNotLeader): // the next term begins with everything, but this one may continue
		result, err = reconcile.Result{RequeueAfter: limits.MinBackoff}, nil
	case c.conflicted(request, err): // an event with the newer version follows
		return reconcile.Result{RequeueAfter: limits.MinBackoff}, nil
	}
	if wait := c.pauses.undone(request); wait > 0 && err == nil {
		result.RequeueAfter, err = wait, errUndone
	}
	c.note(request, err)
	result.Priority = new(0)
	switch {
	case err == nil:
		c.backoff.succeeded(request)
		return result, nil
	case result.RequeueAfter > 0:
		err = nil
	}
	*result.Priority = lastPriority // it may take as long again
	return result, err
}

// conflicted reports whether an error is one of the first maxConflicts conflicts in a row of a request.
func (c *Controller) conflicted(request reconcile.Request, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !apierrors.IsConflict(err) {
		delete(c.conflicts, request)
		return false
	}
	c.conflicts[request]++
	return c.conflicts[request] < maxConflicts
}

// all returns the requests for everything.
func (c *Controller) all(ctx context.Context) ([]reconcile.Request, error) {
	requests := c.reconciler.All()
	for object := range c.reconciler.Watches() {
		var list client.ObjectList = &unstructured.UnstructuredList{}
		if _, ok := object.(*metav1.PartialObjectMetadata); ok {
			list = &metav1.PartialObjectMetadataList{}
		}
		gvk := object.GetObjectKind().GroupVersionKind()
		gvk.Kind += "List"
		list.GetObjectKind().SetGroupVersionKind(gvk)
		if err := c.watched.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return requests, err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			requests = append(requests, c.reconciler.Requests(ctx, o.(client.Object))...)
			return nil
		})
		if err != nil {
			return requests, err
		}
	}
	return requests, nil
}

// note records the result of a request, and logs a problem unless another request has the same one.
func (c *Controller) note(request reconcile.Request, err error) {
	var problem diag.Diagnostic
	if err != nil {
		problem = c.reconciler.Finding(request, err)
		problem.Message = cmp.Or(problem.Message, err.Error())
		if apierrors.IsConflict(err) || errors.Is(err, errUndone) {
			problem.Fix = "stop the other client that changes the object all the time: metadata.managedFields names it; it is tried again"
		}
	}
	c.mu.Lock()
	known := err == nil || c.problems[request] == problem || slices.Contains(slices.Collect(maps.Values(c.problems)), problem)
	delete(c.problems, request)
	if err != nil {
		c.problems[request] = problem
	}
	c.mu.Unlock()
	if !known {
		c.logger.Warn("failed to reconcile "+c.name, "object", problem.Object, "err", err) //nolint:sloglint // constant for a controller
	}
}

// Findings returns a finding for each request whose last reconcile failed, and for each kind that cannot be read,
// sorted by object.
func (c *Controller) Findings() []diag.Diagnostic {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Collect(maps.Values(c.problems))
	for of, err := range c.readErrors {
		fix := "grant list and watch of them to this server's ServiceAccount; it is tried again"
		if err.unserved {
			fix = "install the CustomResourceDefinition of the kind, or enable its API in the API server; it is tried again"
		}
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: c.codeUnread, Message: of.kind + " objects cannot be read: " + err.text, Fix: fix,
		})
	}
	slices.SortFunc(list, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(list) // several requests may have one problem
}
