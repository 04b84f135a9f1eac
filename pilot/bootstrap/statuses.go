package bootstrap

import (
	"context"
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/galley/analysis"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
	"github.com/istiod-lite/istiod-lite/pilot/status"
)

// statuses is what writes findings into the statuses of objects.
type statuses struct {
	writer *status.Writer
	lease  *leader.Lease // without which this server writes none; nil: it may in any case
}

// analysisLease is the right to write findings into statuses. It is istiod's Lease too, and that of all revisions: an
// object has one status.
const analysisLease = "istio-analyze-leader"

// newStatuses makes what writes findings into the statuses of objects, where that is asked for and there is a cluster.
func (s *Server) newStatuses() (*statuses, error) {
	if !s.o.Advice || s.o.Client == nil {
		return nil, nil
	}
	x, guarded := &statuses{}, rest.CopyConfig(s.o.Client)
	guarded.ContentType, guarded.AcceptContentTypes = "application/json", "application/json"
	if !s.o.NoElection {
		var err error
		x.lease, err = leader.New(leader.Options{
			Client: s.o.Client, Namespace: s.o.Namespace, Name: analysisLease, Identity: s.o.Instance(), Logger: s.o.Logger.With("scope", "leader"),
		})
		if err != nil {
			return nil, fmt.Errorf("leader election: %w", err)
		}
		guarded.Wrap(x.lease.Guard)
	}
	client, err := dynamic.NewForConfig(guarded)
	if err != nil {
		return nil, err
	}
	x.writer = status.New(status.Options{
		Client: client, Object: s.world.Object, Counts: s.world.Shows, Rate: float64(s.o.StatusRate), Logger: s.o.Logger.With("scope", "status"),
		Findings: func() ([]diag.Diagnostic, bool) {
			return s.objectFindings(), !analysis.LeftOut(s.analyst.Findings.Get())
		},
		Describe: func(code string) status.Code {
			c := analysis.Describe(code)
			return status.Code{ID: c.ID, Name: c.Name, URL: c.URL}
		},
	})
	s.analyst.Looked = x.writer.Wake
	return x, nil
}

// writeStatuses writes findings into statuses while this server is elected, until ctx ends.
func (s *Server) writeStatuses(ctx context.Context) error {
	if s.statuses.lease == nil {
		s.statuses.writer.Run(ctx)
	} else {
		s.statuses.lease.Run(ctx, s.statuses.writer.Run)
	}
	return nil
}
