package bootstrap

import (
	"context"
	"crypto/tls"
	"net/http"

	"github.com/istiod-lite/istiod-lite/api/admission"
	"github.com/istiod-lite/istiod-lite/galley/webhook"
	injecting "github.com/istiod-lite/istiod-lite/injector/webhook"
)

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
		s.o.Logger.Info("no certificate authority: the port of the webhooks does not listen", "https", s.o.HTTPS, "fix", "--stateDir, or a CA in ROOT_CA_DIR")
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", readyHandler(s.ready.Load, s.awaited))
	s.mountWebhooks(mux)
	config := s.secure.authority.TLS(&tls.Config{MinVersion: s.o.Certificates.MinTLS, NextProtos: []string{"h2", "http/1.1"}})
	return s.serveHTTP(ctx, "https", s.o.HTTPS, mux, httpOptions{tls: config, body: s.o.Limits.WebhookBody}, &s.bound.HTTPS)
}
