package bootstrap

import (
	"context"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/galley/analysis"
	"github.com/istiod-lite/istiod-lite/pilot/components"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/status"
)

// statuses is the Component that writes findings into the statuses of objects.
type statuses struct {
	*controllers.Manager
	server     *Server
	reconciler *status.Analysis
}

// newStatuses returns nil if statuses are disabled or there is no cluster.
func (s *Server) newStatuses() (components.Component, error) {
	if !s.o.Advice || s.o.Client == nil {
		return nil, nil
	}
	x := &statuses{server: s}
	x.reconciler = status.NewAnalysis(s.world, x, s.statusLimit)
	if s.o.Conditions {
		x.reconciler.LeaveGeneration()
	}
	var err error
	x.Manager, _, err = s.newStatusManager("AnalysisStatus", names.AnalysisLease, x.reconciler, false)
	return x, err
}

// newStatusManager returns the Manager and the Controller of a reconciler of statuses.
func (s *Server) newStatusManager(name, lease string, r controllers.Reconciler, onDemand bool) (
	*controllers.Manager, *controllers.Controller, error,
) {
	logger := s.o.Logger.With("scope", "status")
	elected, err := s.election(s.o.Client, s.o.Instance()).Lease(lease, "")
	if err != nil {
		return nil, nil, err
	}
	c := controllers.New(name, "", r, logger) // it watches nothing
	m, err := controllers.NewManager(controllers.Options{Client: s.o.Client, Lease: elected, OnDemand: onDemand, Logger: logger}, c)
	return m, c, err
}

// Found returns the findings about objects, and whether they are complete.
func (x *statuses) Found() ([]diag.Diagnostic, bool) {
	list := x.server.objectFindings()
	return list, !analysis.LeftOut(list)
}

// Describe returns the name and the ID of a code in statuses.
func (*statuses) Describe(code string) status.Code {
	c := analysis.Describe(code)
	return status.Code{ID: c.ID, Name: c.Name, URL: c.URL}
}

func (*statuses) Name() string { return "statuses of objects" }

// Run writes findings into statuses while this server is elected, until ctx ends.
func (x *statuses) Run(ctx context.Context) error {
	safe.Beside(ctx, x.server.o.Logger, "findings for statuses", x.follow, x.Manager.Run)
	return nil
}

// follow reconciles everything after each analysis, until ctx ends.
func (x *statuses) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.server.analyst.Analyzed():
			x.reconciler.Analysed()
			x.NotifyAll()
		}
	}
}

// derivedStatuses is the Component that writes the statuses that stages derive.
type derivedStatuses struct {
	*controllers.Manager
	controller *controllers.Controller
	world      *ingest.World
}

// newDerivedStatuses returns nil if there is no cluster.
func (s *Server) newDerivedStatuses() (components.Component, error) {
	if s.o.Client == nil {
		return nil, nil
	}
	d := &derivedStatuses{world: s.world}
	var err error
	r := status.NewDerived(s.world, s.statusLimit, s.programming())
	d.Manager, d.controller, err = s.newStatusManager("DerivedStatus", names.IngressLease, r, true)
	return d, err
}

func (*derivedStatuses) Name() string { return "statuses of Ingresses" }

// Committed reconciles the statuses that a commit has changed.
func (d *derivedStatuses) Committed([]kinds.Change) {
	for key, s := range d.world.TakeStatuses() {
		if s != nil {
			d.Need()
		}
		d.controller.Notify(status.Request(key))
	}
}

// Run writes the statuses that stages derive while this server is elected, until ctx ends. The election begins with the
// first status.
func (d *derivedStatuses) Run(ctx context.Context) error {
	d.Manager.Run(ctx)
	return nil
}
