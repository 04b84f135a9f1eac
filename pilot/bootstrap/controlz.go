package bootstrap

import (
	"context"
	"net/netip"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
	"github.com/istiod-lite/istiod-lite/pilot/ctrlz"
	"github.com/istiod-lite/istiod-lite/pilot/ports"
)

// listenControlZ opens the port of ControlZ. All servers have the same port by default, so another server on this host
// may hold it. That is an error only if a flag asks for the port.
func (s *Server) listenControlZ(ctx context.Context) error {
	o := s.o.ControlZ
	if o.Address == "" || o.Scopes == nil {
		return nil
	}
	handler := s.debug.Guard(
		ctrlz.Handler(ctrlz.Options{Scopes: o.Scopes, Args: o.Args, Environ: o.Environ, Version: s.o.Version, Metrics: s.metrics}),
	)
	err := s.ports.ServeHTTP(ctx, ports.ControlZ, o.Address, handler, ports.HTTP{})
	if err != nil && !o.Required {
		s.o.Logger.Info("ControlZ is not served", "address", o.Address, "err", err, "fix", "--ctrlz_port with a free port")
		return nil
	}
	return err
}

// authenticateBearer returns the peer that a bearer token over HTTP proves.
func (s *Server) authenticateBearer(ctx context.Context, address netip.AddrPort, token string) (identity.Peer, error) {
	if s.secure == nil {
		return identity.Peer{Address: address}, authenticate.ErrUnavailable
	}
	return s.secure.Bearer(ctx, address, token)
}
