package bootstrap

import (
	"github.com/istiod-lite/istiod-lite/pilot/authorize/access"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// secretAccess returns what asks the API server whether service accounts may list the Secrets of their namespace, and
// has it run.
func (s *Server) secretAccess() (xds.Access, error) {
	ask, err := access.AskServer(s.o.Client)
	if err != nil {
		return nil, err
	}
	r := access.New(access.Options{Logger: s.o.Logger.With("scope", "authorization"), Ask: ask})
	s.components.background("reviews of access to secrets", r.Run)
	return r, nil
}
