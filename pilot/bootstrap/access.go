package bootstrap

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/pilot/authorize/access"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// askAccess asks one API server whether an identity may list the Secrets of its namespace.
type askAccess = func(context.Context, identity.ID) (bool, error)

// secretAccess returns what asks API servers whether service accounts may list the Secrets of their namespace, each
// about the Secrets of its own cluster, and has it run.
func (s *Server) secretAccess() (xds.Access, error) {
	own, err := access.AskServer(s.o.Client)
	if err != nil {
		return nil, err
	}
	remote := &perCluster[askAccess]{kubeconfig: s.from.Kubeconfig, client: s.o.RemoteClient, make: func(_ string, client *rest.Config) (askAccess, error) {
		return access.AskServer(client)
	}}
	r := access.New(access.Options{
		Logger: s.o.Logger.With("scope", "authorization"), ClusterID: s.o.ClusterID,
		Ask: func(ctx context.Context, cluster string, id identity.ID) (bool, error) {
			if cluster == s.o.ClusterID {
				return own(ctx, id)
			}
			ask, known, err := remote.get(cluster)
			switch {
			case err != nil:
				return false, err
			case !known:
				return false, fmt.Errorf("cluster %.200q is not known", cluster)
			}
			return ask(ctx, id)
		},
	})
	s.components.background("reviews of access to secrets", r.Run)
	return r, nil
}
