package bootstrap

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/admission"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/galley/controller"
	"github.com/istiod-lite/istiod-lite/galley/webhook"
	injecting "github.com/istiod-lite/istiod-lite/injector/webhook"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// Webhooks are options of the webhooks' configurations in the cluster.
type Webhooks struct {
	NoValidation bool // leave ValidatingWebhookConfigurations alone
	NoInjection  bool // leave MutatingWebhookConfigurations alone
}

// webhooks are what the port of the webhooks has of its own.
type webhooks struct {
	held       *authority.Held        // the certificate that API servers are shown
	controller *controller.Controller // nil: nobody keeps the configurations
	lease      *leader.Lease          // without which this server writes none; nil: it may in any case
}

// webhooksLease is the right to write the webhook configurations of one revision.
const webhooksLease = "istio-webhook-controller-election"

// newWebhooks makes what keeps the webhook configurations of a cluster that the server is part of.
func (s *Server) newWebhooks() (*webhooks, error) {
	if s.secure == nil || s.o.HTTPS == "" {
		return nil, nil
	}
	w := &webhooks{held: s.secure.authority.Hold()}
	if !s.o.member() || s.o.Webhooks.NoValidation && s.o.Webhooks.NoInjection {
		return w, nil
	}
	guarded, lead := rest.CopyConfig(s.o.Client), func() bool { return true }
	if !s.o.NoElection {
		var err error
		w.lease, err = leader.New(leader.Options{
			Client: s.o.Client, Namespace: s.o.Namespace, Name: webhooksLease, Revision: s.o.Revision, Identity: s.o.Instance(), Logger: s.o.Logger.With("scope", "leader"),
		})
		if err != nil {
			return nil, fmt.Errorf("leader election: %w", err)
		}
		guarded.Wrap(w.lease.Guard)
		lead = w.lease.Valid
	}
	client, err := dynamic.NewForConfig(guarded)
	if err != nil {
		return nil, fmt.Errorf("client of the webhook configurations: %w", err)
	}
	w.controller = controller.New(controller.Options{
		Client: client, Namespace: s.o.Namespace, Revision: s.o.Revision, Validation: !s.o.Webhooks.NoValidation, Injection: !s.o.Webhooks.NoInjection,
		Lead: lead, Bundle: w.held.Roots, Observed: w.held.Observed, Logger: s.o.Logger.With("scope", "validationController"), Registerer: s.metrics,
	})
	return w, nil
}

// keepWebhooks keeps the webhook configurations until ctx ends.
func (s *Server) keepWebhooks(ctx context.Context) error {
	w := s.webhooks
	if w.lease == nil {
		return w.controller.Run(ctx)
	}
	ended := make(chan struct{})
	safe.Go(s.o.Logger, "webhook leader", func() {
		defer close(ended)
		w.lease.Run(ctx, func(ctx context.Context) {
			w.controller.Wake()
			<-ctx.Done()
		})
	})
	defer func() { <-ended }()
	return w.controller.Run(ctx)
}

// mountWebhooks adds the webhooks to a mux. They share a Gate, which bounds what they cost together.
func (s *Server) mountWebhooks(mux *http.ServeMux) {
	gate := admission.NewGate(s.o.Limits)
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
