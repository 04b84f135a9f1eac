package bootstrap

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/admission"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/galley/controller"
	"github.com/istiod-lite/istiod-lite/galley/webhook"
	injecting "github.com/istiod-lite/istiod-lite/injector/webhook"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Webhooks are options of the webhooks' configurations in the cluster.
type Webhooks struct {
	NoValidation bool // leave ValidatingWebhookConfigurations alone
	NoInjection  bool // leave MutatingWebhookConfigurations alone
}

// webhooks are what the port of the webhooks has of its own.
type webhooks struct {
	server     *Server
	held       *authority.Held // the certificate that API servers are shown
	callers    callers         // what those trust
	metrics    *controller.Metrics
	controller *controller.Controller // nil: nobody keeps the configurations
	lease      *leader.Lease          // without which this server writes none; nil: it may in any case
}

// webhooksLease is the right to write the webhook configurations of one revision.
const webhooksLease = "istio-webhook-controller-election"

// newWebhooks makes what the port of the webhooks needs. The Component keeps the webhook configurations of the cluster
// that the server is part of; it is nil if this server keeps none.
func (s *Server) newWebhooks() (Component, error) {
	if s.secure == nil || s.o.HTTPS == "" {
		return nil, nil
	}
	w := &webhooks{server: s, held: s.secure.authority.Hold()}
	w.callers.hears = w.held.Observed
	s.webhooks = w
	if !s.o.member() || s.o.Webhooks.NoValidation && s.o.Webhooks.NoInjection {
		return nil, nil
	}
	w.metrics = controller.NewMetrics(s.metrics)
	var err error
	if !s.o.NoElection {
		if w.lease, err = s.newLease(s.o.Client, webhooksLease, s.o.Revision, s.o.Instance()); err != nil {
			return nil, err
		}
	}
	w.controller, err = s.newController(w, s.o.Client, "", w.lease)
	return w, err
}

func (*webhooks) Name() string { return "webhook configurations" }

// Run keeps the webhook configurations until ctx ends.
func (w *webhooks) Run(ctx context.Context) error {
	return w.server.leadWebhooks(ctx, w.controller, w.lease)
}

// RootsChanged has the configurations reconciled.
func (w *webhooks) RootsChanged() { w.controller.Wake() }

// Findings returns which configurations cannot be read or written.
func (w *webhooks) Findings() []diag.Diagnostic { return w.controller.Findings() }

// newLease makes a Lease in the system namespace of a cluster.
func (s *Server) newLease(client *rest.Config, name, revision, identity string) (*leader.Lease, error) {
	lease, err := leader.New(leader.Options{
		Client: client, Namespace: s.o.Namespace, Name: name, Revision: revision, Identity: identity, Logger: s.o.Logger.With("scope", "leader"),
	})
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return lease, nil
}

// newController makes what keeps the webhook configurations of a cluster; the server's own is "". It writes only while
// this server has the lease, if there is one.
func (s *Server) newController(w *webhooks, client *rest.Config, cluster string, lease *leader.Lease) (*controller.Controller, error) {
	guarded, lead := rest.CopyConfig(client), func() bool { return true }
	if lease != nil {
		guarded.Wrap(lease.Guard)
		lead = lease.Valid
	}
	writer, err := dynamic.NewForConfig(guarded)
	if err != nil {
		return nil, fmt.Errorf("client of the webhook configurations: %w", err)
	}
	return controller.New(controller.Options{
		Client: writer, Namespace: s.o.Namespace, Revision: s.o.Revision, Validation: !s.o.Webhooks.NoValidation, Injection: !s.o.Webhooks.NoInjection,
		Lead: lead, Bundle: w.held.Roots, Observed: func(bundles [][]byte) { w.callers.observed(cluster, bundles) },
		Logger: s.o.Logger.With("scope", "validationController"), Metrics: w.metrics,
	}), nil
}

// callers are the API servers that call the webhooks, and by which roots each verifies them.
type callers struct {
	hears func(bundles [][]byte)

	mu        sync.Mutex
	byCluster map[string][][]byte
}

// observed takes the bundles of one cluster; nil: it calls no more.
func (c *callers) observed(cluster string, bundles [][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byCluster == nil {
		c.byCluster = map[string][][]byte{}
	}
	c.byCluster[cluster] = bundles
	if bundles == nil {
		delete(c.byCluster, cluster)
	}
	var all [][]byte
	for _, cluster := range slices.Sorted(maps.Keys(c.byCluster)) {
		all = append(all, c.byCluster[cluster]...)
	}
	c.hears(all)
}

// leadWebhooks runs a Controller that writes while this server has the lease, if there is one, until ctx ends.
func (s *Server) leadWebhooks(ctx context.Context, c *controller.Controller, lease *leader.Lease) error {
	if lease == nil {
		return c.Run(ctx)
	}
	ended := make(chan struct{})
	safe.Go(s.o.Logger, "webhook leader", func() {
		defer close(ended)
		lease.Run(ctx, func(ctx context.Context) {
			c.Wake()
			<-ctx.Done()
		})
	})
	defer func() { <-ended }()
	return c.Run(ctx)
}

// mountWebhooks adds the webhooks to a mux. They share a Gate, which bounds what they cost together.
func (s *Server) mountWebhooks(mux *http.ServeMux) {
	gate := admission.NewGate(s.o.Limits, s.apiServers)
	validate := webhook.New(webhook.Options{Gate: gate, Limits: s.o.Limits, Registerer: s.metrics})
	mux.Handle(webhook.Path, validate)
	mux.Handle(webhook.Path+"/", validate)
	if s.injection == nil {
		return
	}
	inject := injecting.New(injecting.Options{Gate: gate, Injector: s.injection.injector, Registerer: s.metrics, Logger: s.o.Logger.With("scope", "injection")})
	mux.Handle(injecting.Path, inject)
	mux.Handle(injecting.Path+"/", inject)
}

// apiServers returns the addresses of API servers: the endpoints of the Service that each API server keeps for itself.
// They are not known before the first Snapshot, or where the namespace of that Service is not read.
func (s *Server) apiServers() (all []netip.Addr) {
	snap := s.world.Snapshot()
	if snap == nil {
		return nil
	}
	key := registry.ServiceKey{Namespace: "default", Host: "kubernetes.default.svc." + snap.Domain}
	for _, e := range snap.Endpoints(key).List {
		if a, err := netip.ParseAddr(e.Address); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// listenHTTPS opens the port of the webhooks, once the server has a certificate. Without one it does not listen.
func (s *Server) listenHTTPS(ctx context.Context) error {
	switch {
	case s.o.HTTPS == "": // they are on the HTTP port
		return nil
	case s.secure == nil:
		s.o.Logger.Info("the server has no certificate: the port of the webhooks does not listen", "https", s.o.HTTPS, "fix", certificateFix)
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", readyHandler(s.ready.Load, s.awaited))
	s.mountWebhooks(mux)
	config := s.webhooks.held.TLS(&tls.Config{MinVersion: s.o.Certificates.MinTLS, NextProtos: []string{"h2", "http/1.1"}})
	return s.serveHTTP(ctx, "https", s.o.HTTPS, mux, httpOptions{tls: config, body: s.o.Limits.WebhookBody, most: s.o.Limits.WebhookConns}, &s.bound.HTTPS)
}
