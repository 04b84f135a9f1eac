package bootstrap

import (
	"github.com/istiod-lite/istiod-lite/pilot/authorize/access"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// secretAccess returns the Access that asks API servers whether service accounts may list the Secrets of their
// namespace. It runs with the server.
func (s *Server) secretAccess() (xds.Access, error) {
	servers, err := ingest.NewPerServer(s.from, access.AskServer)
	if err != nil {
		return nil, err
	}
	r := access.New(access.Options{Servers: servers, ClusterID: s.o.ClusterID, Logger: s.o.Logger.With("scope", "authorization")})
	s.components.Background("reviews of access to secrets", r.Run)
	return r, nil
}
