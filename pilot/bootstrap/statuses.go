package bootstrap

import (
	"context"
	"sync"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/galley/analysis"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
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
func (s *Server) newStatuses() (Component, error) {
	if !s.o.Advice || s.o.Client == nil {
		return nil, nil
	}
	client, lease, err := s.elected(analysisLease)
	if err != nil {
		return nil, err
	}
	x := &statuses{lease: lease}
	x.writer = status.New(status.Options{
		Client: client, Object: s.world.Object, Counts: s.world.Shows, Rate: float64(s.o.StatusRate), Logger: s.o.Logger.With("scope", "status"),
		Findings: func() ([]diag.Diagnostic, bool) {
			list := s.objectFindings()
			return list, !analysis.LeftOut(list)
		},
		Describe: func(code string) status.Code {
			c := analysis.Describe(code)
			return status.Code{ID: c.ID, Name: c.Name, URL: c.URL}
		},
	})
	s.analyst.Looked = x.writer.Wake
	return x, nil
}

// elected returns a client that writes only while this server holds a Lease, and the Lease. Without election the Lease
// is nil, and the client always writes.
func (s *Server) elected(name string) (dynamic.Interface, *leader.Lease, error) {
	guarded := rest.CopyConfig(s.o.Client)
	guarded.ContentType, guarded.AcceptContentTypes = "application/json", "application/json"
	lease, err := s.election(s.o.Client, s.o.Instance()).Lease(name, "")
	if err != nil {
		return nil, nil, err
	}
	if lease != nil {
		guarded.Wrap(lease.Guard)
	}
	client, err := dynamic.NewForConfig(guarded)
	return client, lease, err
}

func (*statuses) Name() string { return "statuses of objects" }

// Run writes findings into statuses while this server is elected, until ctx ends.
func (x *statuses) Run(ctx context.Context) error {
	whileElected(ctx, x.lease, x.writer.Run)
	return nil
}

func (*statuses) Findings() []diag.Diagnostic { return nil }

// whileElected calls fn while the lease is held, until ctx ends. Without a lease it calls fn.
func whileElected(ctx context.Context, lease *leader.Lease, fn func(context.Context)) {
	if lease == nil {
		fn(ctx)
		return
	}
	lease.Run(ctx, fn)
}

// ingressLease is the right to write the statuses of Ingresses. It has the name that istiod uses, for all revisions.
const ingressLease = "istio-leader"

// derivedStatuses is what writes the statuses that stages derive.
type derivedStatuses struct {
	world  *ingest.World
	writer *status.DerivedWriter
	lease  *leader.Lease // without which this server writes none; nil: it may in any case
	first  sync.Once
	needed chan struct{} // closed when there are statuses to write: no election is held before
}

// newDerivedStatuses returns nil where there is no cluster.
func (s *Server) newDerivedStatuses() (Component, error) {
	if s.o.Client == nil {
		return nil, nil
	}
	client, lease, err := s.elected(ingressLease)
	if err != nil {
		return nil, err
	}
	return &derivedStatuses{world: s.world, lease: lease, needed: make(chan struct{}), writer: status.NewDerived(status.DerivedOptions{
		Client: client, Statuses: s.world.TakeStatuses, Object: s.world.Object, Rate: float64(s.o.StatusRate), Logger: s.o.Logger.With("scope", "status"),
	})}, nil
}

func (*derivedStatuses) Name() string { return "statuses of Ingresses" }

// Committed has statuses written that follow from a commit.
func (d *derivedStatuses) Committed([]kinds.Change) {
	if d.world.HasStatuses() {
		d.first.Do(func() { close(d.needed) })
	}
	d.writer.Wake()
}

// Run writes the statuses that stages derive while this server is elected, until ctx ends.
func (d *derivedStatuses) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-d.needed:
		whileElected(ctx, d.lease, d.writer.Run)
	}
	return nil
}

func (*derivedStatuses) Findings() []diag.Diagnostic { return nil }
