package bootstrap

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/galley/analysis"
	"github.com/istiod-lite/istiod-lite/pilot/components"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/status"
)

// conditions is the Component that writes whether objects are in force into their statuses.
type conditions struct {
	*controllers.Manager
	server     *Server
	controller *controllers.Controller
	reconciler *status.Distribution
}

// newConditions returns nil if conditions are disabled or there is no cluster.
func (s *Server) newConditions() (components.Component, error) {
	if !s.o.Conditions || s.o.Client == nil {
		return nil, nil
	}
	c := &conditions{server: s}
	c.reconciler = status.NewDistribution(status.DistributionOptions{World: s.world, Progress: s.progress, Host: c, Limit: s.statusLimit})
	var err error
	c.Manager, c.controller, err = s.newStatusManager("ConditionStatus", names.ConditionsLease, c.reconciler, false)
	return c, err
}

func (*conditions) Name() string { return "conditions of objects" }

// Committed reconciles the conditions of the objects that a commit has changed.
func (c *conditions) Committed(batch []kinds.Change) {
	for i := range batch {
		if key := batch[i].Key; c.reconciler.Concerns(key) {
			c.controller.Notify(status.Request(key))
		}
	}
}

// Found returns the findings about objects, and whether they are complete.
func (c *conditions) Found() ([]diag.Diagnostic, bool) {
	list := c.server.objectFindings()
	return list, !analysis.LeftOut(list)
}

// Notify adds requests to the queue of the reconciler.
func (c *conditions) Notify(requests ...reconcile.Request) { c.controller.Notify(requests...) }

// Run writes conditions while this server is elected, until ctx ends.
func (c *conditions) Run(ctx context.Context) error {
	c.Manager.Run(ctx)
	return nil
}

// programming returns what decides whether a Gateway is Programmed, or nil if that is not what proxies have
// acknowledged.
func (s *Server) programming() status.Progress {
	if !s.o.Conditions {
		return nil
	}
	return s.progress
}
