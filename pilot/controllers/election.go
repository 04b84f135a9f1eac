package controllers

import (
	"fmt"
	"log/slog"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// Election configures how this replica stands for election in a cluster.
type Election struct {
	Client    *rest.Config // API server of the cluster
	Namespace string       // namespace of the Leases
	Identity  string       // unique name of this replica among all that stand for election there
	Off       bool         // no election: this replica always leads
	Logger    *slog.Logger
}

// Lease returns the Lease with a name and a revision, which may be empty. It returns nil without election.
func (e Election) Lease(name, revision string) (*leader.Lease, error) {
	if e.Off {
		return nil, nil
	}
	lease, err := leader.New(leader.Options{
		Client: e.Client, Namespace: e.Namespace, Name: name, Revision: revision, Identity: e.Identity, Logger: e.Logger.With("scope", "leader"),
	})
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return lease, nil
}
