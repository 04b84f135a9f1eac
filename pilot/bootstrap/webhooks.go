package bootstrap

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/netip"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/admission"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/galley/controller"
	"github.com/istiod-lite/istiod-lite/galley/webhook"
	injecting "github.com/istiod-lite/istiod-lite/injector/webhook"
	"github.com/istiod-lite/istiod-lite/pilot/components"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/ports"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Webhooks configure the maintenance of webhook configurations.
type Webhooks struct {
	NoValidation bool // do not write ValidatingWebhookConfigurations
	NoInjection  bool // do not write MutatingWebhookConfigurations
}

// webhooks is the state of the webhooks' port, and the Component that reconciles the webhook configurations.
type webhooks struct {
	*controllers.Manager                 // nil if this server reconciles no configurations
	held                 *authority.Held // the certificate that API servers are shown
	metrics              *controller.Metrics
}

// codeUnread is the code of the finding that webhook configurations cannot be read.
const codeUnread = "WebhooksNotRead"

// newWebhooks returns the state of the webhooks' port. The Manager reconciles the webhook configurations of the
// server's own cluster, and is nil if this server reconciles none.
func (s *Server) newWebhooks() (components.Component, error) {
	if s.secure == nil || s.o.HTTPS == "" {
		return nil, nil
	}
	w := &webhooks{held: s.secure.Authority.Hold()}
	s.webhooks = w
	if !s.o.member() || s.o.Webhooks.NoValidation && s.o.Webhooks.NoInjection {
		return nil, nil
	}
	w.metrics = controller.NewMetrics(s.metrics)
	var err error
	w.Manager, err = s.newConfigurations(s.election(s.o.Client, s.o.Instance()), "")
	return w, err
}

func (*webhooks) Name() string { return "webhook configurations" }

// Run reconciles the webhook configurations until ctx ends.
func (w *webhooks) Run(ctx context.Context) error {
	w.Manager.Run(ctx)
	return nil
}

// RootsChanged reconciles all configurations.
func (w *webhooks) RootsChanged() { w.NotifyAll() }

// election returns how this server stands for election in a cluster.
func (s *Server) election(client *rest.Config, identity string) controllers.Election {
	return controllers.Election{Client: client, Namespace: s.o.Namespace, Identity: identity, Off: s.o.NoElection, Logger: s.o.Logger}
}

// newConfigurations returns the Manager that reconciles the webhook configurations of a cluster. The ID of the server's
// own cluster is "". All replicas watch them, and the elected one writes.
func (s *Server) newConfigurations(e controllers.Election, cluster string) (*controllers.Manager, error) {
	lease, err := e.Lease(names.WebhooksLease, s.o.Revision)
	if err != nil {
		return nil, err
	}
	logger := s.o.Logger.With("scope", "validationController")
	var list []*controllers.Controller
	for _, kind := range []*kinds.Kind{controller.Validating, controller.Mutating} {
		if kind == controller.Validating && s.o.Webhooks.NoValidation || kind == controller.Mutating && s.o.Webhooks.NoInjection {
			continue
		}
		list = append(list, controllers.New(kind.Name, codeUnread, controller.New(controller.Options{
			Kind: kind, Namespace: s.o.Namespace, Revision: s.o.Revision, Lease: lease, Bundles: s.webhooks.held,
			Caller: cluster + "/" + kind.Name, Logger: logger, Metrics: s.webhooks.metrics,
		}), logger))
	}
	return controllers.NewManager(controllers.Options{Client: e.Client, Lease: lease, Always: true, Logger: logger}, list...)
}

// mountWebhooks adds the webhooks to a mux. They share a Gate, which bounds their total cost.
func (s *Server) mountWebhooks(mux *http.ServeMux) {
	gate := admission.NewGate(s.o.Limits, s.apiServers)
	validate := webhook.New(webhook.Options{Gate: gate, Limits: s.o.Limits, Registerer: s.metrics})
	mux.Handle(webhook.Path, validate)
	mux.Handle(webhook.Path+"/", validate)
	if s.injection == nil {
		return
	}
	inject := injecting.New(
		injecting.Options{Gate: gate, Injector: s.injection.Injector, Registerer: s.metrics, Logger: s.o.Logger.With("scope", "injection")},
	)
	mux.Handle(injecting.Path, inject)
	mux.Handle(injecting.Path+"/", inject)
}

// apiServers returns the addresses of API servers: the endpoints of the Service kubernetes. They are unknown before the
// first Snapshot, and if its namespace is not read.
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

// listenHTTPS opens the port of the webhooks once the server has a certificate. Without one it does nothing.
func (s *Server) listenHTTPS(ctx context.Context) error {
	switch {
	case s.o.HTTPS == "": // the webhooks are on the HTTP port
		return nil
	case s.secure == nil:
		s.o.Logger.Info("the server has no certificate: the port of the webhooks does not listen", "https", s.o.HTTPS, "fix", certificateFix)
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", readyHandler(s.ready.Load, s.awaited))
	s.mountWebhooks(mux)
	config := s.webhooks.held.TLS(s.o.Compliance.Limit(&tls.Config{
		MinVersion: s.o.Certificates.MinTLS, NextProtos: []string{"h2", "http/1.1"},
	}))
	return s.ports.ServeHTTP(
		ctx, ports.Webhooks, s.o.HTTPS, mux, ports.HTTP{TLS: config, Body: s.o.Limits.WebhookBody, Conns: s.o.Limits.WebhookConns},
	)
}
