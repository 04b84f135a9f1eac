package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Options of a Controller.
type Options struct {
	Client     dynamic.Interface
	Namespace  string // of the server, where the dry run is
	Revision   string // empty: default
	Validation bool   // keep ValidatingWebhookConfigurations
	Injection  bool   // keep MutatingWebhookConfigurations

	Lead     func() bool            // whether this replica writes
	Bundle   func() []byte          // the caBundle to write, as PEM; nil while it is not known
	Observed func(bundles [][]byte) // hears what the API server has, each time that it may differ; nil: nobody does
	Logger   *slog.Logger
	Metrics  *Metrics
}

// Controller keeps webhook configurations. Wake and Findings may be called from any goroutine.
type Controller struct {
	o    Options
	wake chan struct{} // has one message at most

	mu       sync.Mutex
	configs  map[key]*config
	synced   map[schema.GroupVersionResource]bool
	troubles map[schema.GroupVersionResource]string // why they cannot be read
	failed   map[key]string                         // why they are not as they should be

	paces map[key]*pace // of Run alone
}

// Times of the loop.
const (
	leastPause = time.Second      // between two writes of one object, or two dry runs for it
	mostPause  = 4 * time.Second  // the same, while somebody undoes the writes, or the dry runs fail
	calm       = 30 * time.Second // without a write after which the pause is the least again
	longest    = 10 * time.Second // that a write or a dry run takes
	look       = 10 * time.Second // between two looks if nothing happens: the bundle may be another by time alone
)

// pace spaces what is done for one object.
type pace struct {
	last  time.Time // when something was done
	pause time.Duration
}

// due returns how long to wait; 0 or less if it is time.
func (p *pace) due(now time.Time) time.Duration { return p.last.Add(p.pause).Sub(now) }

// done notes that something was done.
func (p *pace) done(now time.Time) {
	if now.Sub(p.last) > calm {
		p.pause = 0
	}
	p.last, p.pause = now, min(max(leastPause, 2*p.pause), mostPause)
}

// New returns a Controller that does nothing yet.
func New(o Options) *Controller {
	o.Revision = cmp.Or(o.Revision, "default")
	return &Controller{
		o: o, wake: make(chan struct{}, 1), configs: map[key]*config{}, synced: map[schema.GroupVersionResource]bool{},
		troubles: map[schema.GroupVersionResource]string{}, failed: map[key]string{}, paces: map[key]*pace{},
	}
}

// Wake has the Controller look again: at the bundle, and whether it is to write.
func (c *Controller) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// resources returns the kinds that are kept.
func (c *Controller) resources() []schema.GroupVersionResource {
	var list []schema.GroupVersionResource
	if c.o.Validation {
		list = append(list, validating)
	}
	if c.o.Injection {
		list = append(list, mutating)
	}
	return list
}

// Run keeps the configurations as they should be until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	for _, resource := range c.resources() {
		watches.Add(1)
		safe.Go(c.o.Logger, resource.Resource, func() {
			defer watches.Done()
			c.watch(ctx, resource)
		})
	}
	defer watches.Wait()
	for {
		pause := c.step(ctx)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// step does what is due, and returns how long to wait for the next.
func (c *Controller) step(ctx context.Context) time.Duration {
	c.mu.Lock()
	list := slices.SortedFunc(maps.Values(c.configs), func(a, b *config) int { return cmp.Compare(a.String(), b.String()) })
	complete := len(c.synced) == len(c.resources())
	for k := range c.failed {
		if c.configs[k] == nil {
			delete(c.failed, k)
		}
	}
	c.mu.Unlock()
	for k := range c.paces {
		if !slices.ContainsFunc(list, func(have *config) bool { return have.key == k }) {
			delete(c.paces, k)
		}
	}
	if !complete {
		return look
	}
	if c.o.Observed != nil {
		var bundles [][]byte
		for _, have := range list {
			for _, h := range have.webhooks {
				bundles = append(bundles, h.bundle)
			}
		}
		c.o.Observed(bundles)
	}
	if !c.o.Lead() {
		c.mu.Lock()
		clear(c.failed) // whether another replica mends it is not known here
		c.mu.Unlock()
		return look
	}
	bundle := c.o.Bundle()
	if len(bundle) == 0 {
		return look
	}
	next := look
	for _, have := range list {
		if wait := c.keep(ctx, have, bundle); wait > 0 {
			next = min(next, wait)
		}
	}
	return next
}

// keep does what one object needs, if it is time, and returns how long to wait for the next look; 0: nothing is needed.
func (c *Controller) keep(ctx context.Context, have *config, bundle []byte) time.Duration {
	open := have.open()
	if have.trusts(bundle) && len(open) == 0 {
		c.done(have.key, "")
		return 0
	}
	p := c.paces[have.key]
	if p == nil {
		p = &pace{}
		c.paces[have.key] = p
	}
	if wait := p.due(time.Now()); wait > 0 {
		return wait
	}
	works, why := map[string]bool{}, ""
	if have.trusts(bundle) { // before, no webhook can be asked
		for _, h := range open {
			problem := c.probe(ctx, h, have.webhooks)
			if works[h.name] = problem == ""; problem != "" {
				why = fmt.Sprintf("webhook %s lets invalid objects through while it cannot be asked: %s", h.name, problem)
			}
		}
	}
	if patch := have.patch(bundle, works); patch != nil {
		if err := c.write(ctx, have, patch); err != nil {
			why = err.Error()
		}
	}
	p.done(time.Now())
	if ctx.Err() == nil {
		c.done(have.key, why)
	}
	return p.pause
}

// write patches an object. A conflict is no error: the version that it is about is still to come.
func (c *Controller) write(ctx context.Context, have *config, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	c.o.Metrics.attempts.WithLabelValues(have.name).Inc()
	u, err := c.o.Client.Resource(have.resource).Patch(ctx, have.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "istiod"})
	switch {
	case err == nil:
		c.o.Logger.Info("webhook configuration written", "object", have.String())
		if have.resource == validating {
			c.o.Metrics.updates.Inc()
		}
		parsed, err := parse(have.resource, u)
		if err != nil {
			return err
		}
		c.mu.Lock()
		if c.configs[have.key] == have { // what the watch brought meanwhile may be newer
			c.configs[have.key] = parsed
		}
		c.mu.Unlock()
		c.Wake()
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		c.o.Metrics.retries.WithLabelValues(have.name).Inc()
		return nil
	}
	reason := cmp.Or(string(apierrors.ReasonForError(err)), "unknown")
	c.o.Metrics.failures.WithLabelValues(have.name, reason).Inc()
	if have.resource == validating {
		c.o.Metrics.updateErrors.WithLabelValues(reason).Inc()
	}
	return err
}

// trouble notes whether configurations of a kind can be read.
func (c *Controller) trouble(resource schema.GroupVersionResource, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.troubles, resource)
	if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		c.troubles[resource] = err.Error()
		if resource == validating {
			c.o.Metrics.loadErrors.WithLabelValues(cmp.Or(string(apierrors.ReasonForError(err)), "unknown")).Inc()
		}
	}
}

// done notes how an object is, and logs what is new.
func (c *Controller) done(k key, problem string) {
	c.mu.Lock()
	last := c.failed[k]
	delete(c.failed, k)
	if problem != "" {
		c.failed[k] = problem
	}
	c.mu.Unlock()
	if problem != last && problem != "" {
		c.o.Logger.Warn("a webhook configuration is not as it should be", "object", k.String(), "err", problem)
	}
}

// Findings returns what cannot be read or written at present, and which webhooks are not known to work.
func (c *Controller) Findings() []diag.Diagnostic {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []diag.Diagnostic
	for resource, problem := range c.troubles {
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "WebhooksNotRead", Message: resource.Resource + " cannot be read: " + problem,
			Fix: "grant list and watch of them to this server's ServiceAccount; it is tried again",
		})
	}
	for k, problem := range c.failed {
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "WebhookNotReady", Object: k.String(), Message: problem,
			Fix: "see that the API server reaches this server's Service at port 443, and that its ServiceAccount may patch the object and create Gateways in its namespace; it is tried again",
		})
	}
	slices.SortFunc(list, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Message, b.Message))
	})
	return list
}

// Metrics are istiod's, for all Controllers together.
type Metrics struct {
	attempts, failures, retries *prometheus.CounterVec
	updates                     prometheus.Counter
	updateErrors, loadErrors    *prometheus.CounterVec
}

// NewMetrics registers the metrics of Controllers.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	m := &Metrics{
		attempts:     counter("webhook_patch_attempts_total", "Writes of webhook configurations.", "name"),
		failures:     counter("webhook_patch_failures_total", "Writes of webhook configurations that failed.", "name", "reason"),
		retries:      counter("webhook_patch_retries_total", "Writes of webhook configurations that are made again for a newer version.", "name"),
		updates:      prometheus.NewCounter(prometheus.CounterOpts{Name: "galley_validation_config_updates", Help: "Writes of ValidatingWebhookConfigurations."}),
		updateErrors: counter("galley_validation_config_update_error", "Writes of ValidatingWebhookConfigurations that failed.", "reason"),
		loadErrors:   counter("galley_validation_config_load_error", "Reads of ValidatingWebhookConfigurations that failed.", "reason"),
	}
	r.MustRegister(m.updates)
	return m
}
