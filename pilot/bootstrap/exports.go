package bootstrap

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/components"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/exports"
)

// exporter is the Component that creates the ServiceExports of the server's own cluster.
type exporter struct{ *exports.Exporter }

// newExports returns nil unless ServiceExports are to be created and the server reads the Services of a cluster.
func (s *Server) newExports() (components.Component, error) {
	if !s.o.MultiCluster.AutoExport || s.o.Client == nil || s.o.NoServices {
		return nil, nil
	}
	e, err := s.newExporter(s.election(s.o.Client, s.o.Instance()), s.o.Client, "")
	return exporter{e}, err
}

// newExporter returns the Exporter of a cluster. The ID of the server's own cluster is "".
func (s *Server) newExporter(e controllers.Election, client *rest.Config, cluster string) (*exports.Exporter, error) {
	lease, err := e.Lease(names.ExportsLease, "")
	if err != nil {
		return nil, err
	}
	return exports.New(exports.Options{
		Client: client, Lease: lease, Cluster: cluster, Domain: s.o.Domain, Version: s.o.MultiCluster.Version, World: s.world,
		Namespaces: s.o.Namespaces(), Logger: s.o.Logger.With("scope", "kube"),
	})
}

func (exporter) Name() string { return "ServiceExports" }

// Run creates ServiceExports while this server is elected, until ctx ends.
func (e exporter) Run(ctx context.Context) error {
	e.Exporter.Run(ctx)
	return nil
}
