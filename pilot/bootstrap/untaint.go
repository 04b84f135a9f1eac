package bootstrap

import (
	"cmp"
	"context"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/components"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/untaint"
)

// Untaint configures the removal of a taint from nodes on which the CNI plugin is ready.
type Untaint struct {
	On        bool
	Taint     string // key of the taint
	Namespace string // namespace of the plugin's pods; default the root namespace
}

// codeNodesUnread is the code of the finding that Nodes or the plugin's pods cannot be read.
const codeNodesUnread = "NodesNotRead"

// untainted is the Component that removes taints from nodes.
type untainted struct{ *controllers.Manager }

// newUntaint returns nil unless taints are removed.
func (s *Server) newUntaint() (components.Component, error) {
	o := s.o.Untaint
	if !o.On || s.o.Client == nil {
		return nil, nil
	}
	lease, err := s.election(s.o.Client, s.o.Instance()).Lease(names.UntaintLease, "")
	if err != nil {
		return nil, err
	}
	logger := s.o.Logger.With("scope", "kube")
	r := untaint.New(untaint.Options{Namespace: cmp.Or(o.Namespace, s.o.Namespace), Taint: o.Taint, Logger: logger})
	m, err := controllers.NewManager(
		controllers.Options{Client: s.o.Client, Lease: lease, Logger: logger}, controllers.New("Node", codeNodesUnread, r, logger),
	)
	return untainted{m}, err
}

func (untainted) Name() string { return "taints of nodes" }

// Run removes taints while this server is elected, until ctx ends.
func (u untainted) Run(ctx context.Context) error {
	u.Manager.Run(ctx)
	return nil
}
