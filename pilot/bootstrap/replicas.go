package bootstrap

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/citadel/secureport"
	"github.com/istiod-lite/istiod-lite/pilot/debug"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
	"github.com/istiod-lite/istiod-lite/pilot/replicas"
)

// replicaCaller makes connections to other replicas of a server. It is told when the roots change.
type replicaCaller struct{ s *Server }

// TLS implements replicas.Caller.
func (c replicaCaller) TLS(ctx context.Context) (*tls.Config, error) {
	if c.s.secure == nil {
		return nil, errors.New("it has no certificate: " + certificateFix)
	}
	return c.s.secure.Client.TLS(ctx)
}

// RootsChanged replaces the certificate before the next question.
func (c replicaCaller) RootsChanged() { c.s.secure.Client.Renew() }

// Findings returns nothing: what is wrong with a replica is shown in place of its answer.
func (replicaCaller) Findings() []diag.Diagnostic { return nil }

// otherReplicas answers what debug pages and the Tracker ask other replicas: a *replicas.Replicas.
type otherReplicas interface {
	debug.Replicas
	progress.Replicas
}

// newReplicas returns the other replicas of this server; nil if it is no pod of its cluster.
func (s *Server) newReplicas() otherReplicas {
	if !s.o.member() {
		return nil
	}
	s.components.Join(replicaCaller{s})
	return replicas.New(replicas.Options{
		Name: s.o.PodName, Service: secureport.ServiceName(s.o.Revision) + "." + s.o.Namespace + ".svc." + s.o.Domain, Cluster: s.o.ClusterID,
		World: s.world, Caller: replicaCaller{s}, Logger: s.o.Logger,
	})
}
