package controllers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// Options configure a Manager.
type Options struct {
	Client *rest.Config  // API server
	Lease  *leader.Lease // required for writes; nil if this replica always leads
	// Always runs the Controllers at all replicas. They must write only while the Lease is valid, and reconcile
	// everything when it is acquired or lost.
	Always bool
	// OnDemand delays the election and the Controllers until Need is called.
	OnDemand bool
	// Namespaces are the namespaces in which objects are watched. Empty for all.
	Namespaces []string
	Logger     *slog.Logger
}

// Manager runs Controllers while this replica is elected.
type Manager struct {
	o           Options
	config      *rest.Config // its requests are guarded by the Lease
	client      client.Client
	mapper      meta.RESTMapper
	controllers []*Controller
	needed      chan struct{} // closed by Need
	once        sync.Once     // of Need

	mu     sync.Mutex
	failed error // why the controllers do not run, until they have run for a while or the term ends
}

// NewManager returns a Manager. It does not run it.
func NewManager(o Options, controllers ...*Controller) (*Manager, error) {
	// Findings report errors. The library also logs errors at a normal end, even after Start has returned.
	log.SetLogger(logr.FromSlogHandler(slog.DiscardHandler))
	m := &Manager{o: o, config: rest.CopyConfig(o.Client), mapper: mapper(controllers), controllers: controllers, needed: make(chan struct{})}
	if !o.OnDemand {
		m.Need()
	}
	m.config.ContentType, m.config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if m.config.QPS > 0 && m.config.RateLimiter == nil { // one rate limit for the clients of all kinds
		m.config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(m.config.QPS, cmp.Or(m.config.Burst, rest.DefaultBurst))
	}
	m.config.Wrap(noteWrites)
	m.config.Wrap(o.Lease.Guard)
	h, err := rest.HTTPClientFor(m.config)
	if err != nil {
		return nil, fmt.Errorf("make the client of controllers: %w", err)
	}
	if m.client, err = client.New(m.config, client.Options{HTTPClient: h, Scheme: runtime.NewScheme(), Mapper: m.mapper}); err != nil {
		return nil, fmt.Errorf("make the client of controllers: %w", err)
	}
	return m, nil
}

// mapper returns a RESTMapper for the kinds of the Controllers.
func mapper(controllers []*Controller) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, c := range controllers {
		for _, k := range c.reconciler.Kinds() {
			scope := meta.RESTScopeNamespace
			if k.Cluster {
				scope = meta.RESTScopeRoot
			}
			for _, v := range k.Versions {
				gv := schema.GroupVersion{Group: k.Group, Version: v}
				m.AddSpecific(gv.WithKind(k.Name), gv.WithResource(k.Plural), gv.WithResource(k.Plural), scope)
				m.Add(gv.WithKind(k.Name+"List"), scope) // a cache of some namespaces asks for its scope
			}
		}
	}
	return m
}

// Need lets Run begin. It may be called several times.
func (m *Manager) Need() { m.once.Do(func() { close(m.needed) }) }

// Needed reports whether Run may begin.
func (m *Manager) Needed() bool {
	select {
	case <-m.needed:
		return true
	default:
		return false
	}
}

// Run runs the Controllers in each term of leadership, until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-m.needed:
	}
	if !m.o.Always {
		m.o.Lease.Run(ctx, m.term)
		return
	}
	safe.Beside(ctx, m.o.Logger, "election of controllers", m.stand, m.term)
}

// stand stands for election, and reconciles everything when the Lease is acquired or lost.
func (m *Manager) stand(ctx context.Context) {
	m.o.Lease.Run(ctx, func(ctx context.Context) {
		m.NotifyAll()
		<-ctx.Done()
		m.NotifyAll()
	})
}

// NotifyAll reconciles everything. It does nothing between terms.
func (m *Manager) NotifyAll() {
	for _, c := range m.controllers {
		c.NotifyAll()
	}
}

// Findings returns the findings of the Lease and of the Controllers.
func (m *Manager) Findings() []diag.Diagnostic {
	list := m.o.Lease.Findings()
	m.mu.Lock()
	failed := m.failed
	m.mu.Unlock()
	if failed != nil {
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "ControllersNotRunning",
			Message: fmt.Sprintf("failed to run the controllers of %s: %v", m.names(), failed),
			Fix:     "correct what the message names; they are started again",
		})
	}
	for _, c := range m.controllers {
		list = append(list, c.Findings()...)
	}
	return list
}

// names returns the names of the Controllers.
func (m *Manager) names() string {
	return strings.Join(lists.Map(m.controllers, func(c *Controller) string { return c.name }), ", ")
}

// failureReset is how long controllers run until an earlier failure is over.
const failureReset = 5 * time.Second

// term runs the Controllers until ctx ends, and restarts them after a failure.
func (m *Manager) term(ctx context.Context) {
	note := func(err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.failed = err
	}
	Retry(ctx, m.o.Logger, "failed to run controllers", func() error {
		over := time.AfterFunc(failureReset, func() { note(nil) })
		err := m.manage(ctx)
		over.Stop()
		note(err)
		return err
	})
	note(nil)
}

// unlimited is the timeout of cache syncs. A kind may be unreadable for any time.
const unlimited = 100 * 365 * 24 * time.Hour

// manage runs the Controllers in a manager of controller-runtime until ctx ends.
func (m *Manager) manage(ctx context.Context) error {
	runs, err := manager.New(m.config, manager.Options{
		Scheme:         runtime.NewScheme(),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return m.mapper, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return m.client, nil },
		Logger:         logr.Discard(),
		Metrics:        server.Options{BindAddress: "0"},
		// There is no bound on the shutdown, because the Lease must not be released before its end.
		GracefulShutdownTimeout: new(time.Duration(-1)),
		Controller: config.Controller{
			SkipNameValidation: new(true), CacheSyncTimeout: unlimited, ReconciliationTimeout: reconcileTimeout,
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range m.controllers {
			c.end()
		}
	}()
	for _, c := range m.controllers {
		if err := c.begin(runs, m.client, m.o.Namespaces); err != nil {
			return err
		}
	}
	return runs.Start(ctx)
}
