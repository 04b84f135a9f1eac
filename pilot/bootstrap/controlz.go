package bootstrap

import (
	"context"
	"net/netip"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
	"github.com/istiod-lite/istiod-lite/pilot/ctrlz"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// listenControlZ opens the port of ControlZ. It is the same on every server, so another on this host may have it: that
// stops nothing, unless somebody asked for the port.
func (s *Server) listenControlZ(ctx context.Context) error {
	o := s.o.ControlZ
	if o.Address == "" || o.Scopes == nil {
		return nil
	}
	handler := s.debug.Guard(ctrlz.Handler(ctrlz.Options{Scopes: o.Scopes, Args: o.Args, Environ: o.Environ, Version: s.o.Version, Metrics: s.metrics}))
	err := s.serveHTTP(ctx, "controlz", o.Address, handler, httpOptions{}, &s.bound.ControlZ)
	if err != nil && !o.Required {
		s.o.Logger.Info("ControlZ is not served", "address", o.Address, "err", err, "fix", "--ctrlz_port with a free port")
		return nil
	}
	return err
}

// cacheOf returns what a Translator keeps of encoded resources.
func cacheOf(t *translate.Translator) debug.Cache {
	hits, misses := t.Stats()
	return debug.Cache{Resources: t.Kept(), Hits: hits, Misses: misses, Each: func(yield func(string, string, int)) {
		t.Each(func(r *envoy.Resource) { yield(r.TypeURL(), r.Name, r.Size()) })
	}}
}

// conflictsOf returns what a Translator could not send as it was meant, by metric.
func conflictsOf(t *translate.Translator) map[string][]string {
	out := map[string][]string{}
	for _, c := range translate.Conflicts() {
		if about := t.About(c); len(about) > 0 {
			out[string(c)] = about
		}
	}
	return out
}

// bearer returns what finds out whose a bearer token over HTTP is.
func (s *Server) bearer() func(context.Context, netip.AddrPort, string) (identity.Peer, error) {
	return func(ctx context.Context, address netip.AddrPort, token string) (identity.Peer, error) {
		if s.secure == nil || s.world.Snapshot() == nil {
			return identity.Peer{Address: address}, authenticate.ErrUnavailable
		}
		return s.secure.callers.Authenticate(ctx, authenticate.Request{Address: address, Token: token})
	}
}
