package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Options of a Reconciler.
type Options struct {
	Kind      *kinds.Kind // Validating or Mutating
	Namespace string      // namespace of the server, used by the dry run
	Revision  string      // revision of the configurations; empty for default

	Lease   Lease
	Bundles Bundles
	Caller  string // name of the API server and the Kind for Bundles
	Logger  *slog.Logger
	Metrics *Metrics
}

// Lease is the right to write.
type Lease interface {
	Valid() bool
}

// Bundles provides the caBundles that make API servers trust the webhooks.
type Bundles interface {
	// Roots returns the caBundle to write, as PEM. It returns nil while the caBundle is unknown.
	Roots() []byte
	// Observed receives the caBundles that a caller has, after each event.
	Observed(caller string, bundles [][]byte)
}

// Reconciler reconciles the webhook configurations of one kind. A request names a configuration.
type Reconciler struct {
	o       Options
	client  client.Client
	watched client.Reader
}

const (
	// retryInterval is the time between two tries after a failure. It is constant, because until a try succeeds the API
	// server accepts invalid objects or refuses valid ones.
	retryInterval = 4 * time.Second
	// resyncInterval is the time between two reconciles without an event. The bundle may change without an event, when
	// a certificate expires.
	resyncInterval = 10 * time.Second
)

// New returns a Reconciler.
func New(o Options) *Reconciler {
	o.Revision = cmp.Or(o.Revision, "default")
	return &Reconciler{o: o}
}

// Kinds returns the kind of the configurations and the kind of the dry run's object.
func (r *Reconciler) Kinds() []*kinds.Kind { return []*kinds.Kind{r.o.Kind, kinds.Gateway} }

// Watches returns the configurations of the revision.
func (r *Reconciler) Watches() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{object(r.o.Kind): {Label: labels.SelectorFromSet(labels.Set{names.LabelRevision: r.o.Revision})}}
}

// Requests returns the request for a configuration.
func (r *Reconciler) Requests(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetName()}}}
}

// All returns nothing, because the configurations are watched.
func (r *Reconciler) All() []reconcile.Request { return nil }

// Begin takes the clients of a term.
func (r *Reconciler) Begin(c client.Client, watched client.Reader) { r.client, r.watched = c, watched }

// Finding returns the finding that a webhook is not known to work.
func (r *Reconciler) Finding(request reconcile.Request, err error) diag.Diagnostic {
	fix := "let the API server reach this server's Service at port 443"
	switch {
	case errors.Is(err, errNotRefused):
		fix += ", and let the rules and selectors of the webhook include Gateways of namespace " + r.o.Namespace
	case errors.Is(err, errNotSelected):
		fix = "let the objectSelector of the webhook match an object"
	case apiserver.LacksRule(err):
		fix = "let this server's ServiceAccount patch the configuration, and create Gateways in namespace " + r.o.Namespace
	}
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "WebhookNotReady", Object: r.o.Kind.Name + " " + request.Name, Fix: fix + "; it is tried again",
	}
}

// ReadFailed counts errors of lists and watches.
func (r *Reconciler) ReadFailed(err error) {
	if r.o.Kind == Validating {
		r.o.Metrics.loadErrors.WithLabelValues(reason(err)).Inc()
	}
}

// Reconcile sets the caBundle of a configuration's webhooks, and sets the webhooks that are known to work to fail
// closed.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if err := r.observe(ctx); err != nil {
		return reconcile.Result{}, err
	}
	u := object(r.o.Kind)
	if err := r.watched.Get(ctx, request.NamespacedName, u); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !r.o.Lease.Valid() {
		return reconcile.Result{}, nil
	}
	result := reconcile.Result{RequeueAfter: resyncInterval}
	bundle := r.o.Bundles.Roots()
	if len(bundle) == 0 {
		return result, nil
	}
	observed, err := parse(r.o.Kind, u)
	if err != nil {
		return reconcile.Result{}, err
	}
	works, problem := r.probeAll(ctx, observed, bundle)
	if patch := observed.patch(bundle, works); patch != nil {
		problem = errors.Join(r.write(ctx, u, patch), problem)
	}
	if problem != nil {
		result.RequeueAfter = retryInterval
	}
	return result, problem
}

// observe passes the caBundles in the API server to Options.Observed.
func (r *Reconciler) observe(ctx context.Context) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(object(r.o.Kind).GroupVersionKind())
	if err := r.watched.List(ctx, list); err != nil {
		return err
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	var bundles [][]byte
	for i := range list.Items {
		c, err := parse(r.o.Kind, &list.Items[i])
		if err != nil {
			continue // its own reconcile fails
		}
		for _, h := range c.webhooks {
			bundles = append(bundles, h.bundle)
		}
	}
	r.o.Bundles.Observed(r.o.Caller, bundles)
	return nil
}

// probeAll returns the open webhooks that are known to work, and an error about one that is not. No webhook is probed
// before the API server has the bundle.
func (r *Reconciler) probeAll(ctx context.Context, observed *config, bundle []byte) (works map[string]bool, err error) {
	works = map[string]bool{}
	if !observed.trusts(bundle) {
		return works, nil
	}
	for _, h := range observed.open() {
		problem := r.probe(ctx, h, observed.webhooks)
		if works[h.name] = problem == nil; problem != nil {
			err = fmt.Errorf("webhook %s lets invalid objects through while it cannot be asked: %w", h.name, problem)
		}
	}
	return works, err
}

// write patches a configuration. It is no error if the configuration is gone.
func (r *Reconciler) write(ctx context.Context, u *unstructured.Unstructured, patch []byte) error {
	name := u.GetName()
	r.o.Metrics.attempts.WithLabelValues(name).Inc()
	err := r.client.Patch(ctx, u, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner("istiod"))
	switch {
	case err == nil:
		r.o.Logger.Info("webhook configuration written", "object", r.o.Kind.Name+" "+name)
		if r.o.Kind == Validating {
			r.o.Metrics.updates.Inc()
		}
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		r.o.Metrics.retries.WithLabelValues(name).Inc()
		return client.IgnoreNotFound(err)
	}
	r.o.Metrics.failures.WithLabelValues(name, reason(err)).Inc()
	if r.o.Kind == Validating {
		r.o.Metrics.updateErrors.WithLabelValues(reason(err)).Inc()
	}
	return err
}

// reason returns the metric label for an error.
func reason(err error) string { return cmp.Or(string(apierrors.ReasonForError(err)), "unknown") }

// Metrics has the same metrics as istiod, shared by all Reconcilers.
type Metrics struct {
	attempts, failures, retries *prometheus.CounterVec
	updates                     prometheus.Counter
	updateErrors, loadErrors    *prometheus.CounterVec
}

// NewMetrics registers the metrics of Reconcilers.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	m := &Metrics{
		attempts: counter("webhook_patch_attempts_total", "Writes of webhook configurations.", "name"),
		failures: counter("webhook_patch_failures_total", "Writes of webhook configurations that failed.", "name", "reason"),
		retries:  counter("webhook_patch_retries_total", "Writes of webhook configurations that are made again for a newer version.", "name"),
		updates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "galley_validation_config_updates", Help: "Writes of ValidatingWebhookConfigurations.",
		}),
		updateErrors: counter("galley_validation_config_update_error", "Writes of ValidatingWebhookConfigurations that failed.", "reason"),
		loadErrors:   counter("galley_validation_config_load_error", "Reads of ValidatingWebhookConfigurations that failed.", "reason"),
	}
	r.MustRegister(m.updates)
	return m
}
