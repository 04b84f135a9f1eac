package main

import (
	"context"

	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
)

// scene names objects that some workloads need in the world and others do not.
type scene string

const (
	plain         scene = ""
	withRoutes    scene = "a gateway with routes"
	kubeRoutes    scene = "a Gateway of the Gateway API with HTTPRoutes"
	sidecars      scene = "a Sidecar in each namespace"
	withTemplates scene = "the templates of injection"
	policies      scene = "policies in each namespace"
	rich          scene = "policies, EnvoyFilters, Telemetry and a gateway with certificates"
)

func scenes() []scene {
	return []scene{plain, withRoutes, sidecars, withTemplates, policies, rich, kubeRoutes}
}

// set creates the objects of a scene, and clear removes them. Objects that a failed run has left are created again.
func (b *bench) set(ctx context.Context, at scene, w world.World) error {
	switch at {
	case withRoutes:
		return b.clients.SeedGateway(ctx, w, b.routes, seeders)
	case kubeRoutes:
		crds, err := cluster.GatewayCRDs(ctx)
		if err != nil {
			return err
		}
		if err := b.cluster.InstallCRDs(ctx, crds); err != nil { // only now, because control planes watch these kinds once they exist
			return err
		}
		return b.clients.SeedHTTPRoutes(ctx, w, b.routes, seeders)
	case sidecars:
		return b.clients.SeedSidecars(ctx, w)
	case withTemplates:
		return b.cluster.Apply(ctx, b.templates)
	case policies:
		return b.clients.SeedPolicies(ctx, w, seeders)
	case rich:
		return b.clients.SeedRich(ctx, w, seeders)
	default:
		return nil
	}
}

func (b *bench) clear(ctx context.Context, at scene, w world.World) error {
	switch at {
	case withRoutes:
		return b.clients.RemoveGateway(ctx)
	case kubeRoutes:
		if err := b.clients.RemoveHTTPRoutes(ctx, w); err != nil {
			return err
		}
		crds, err := cluster.GatewayCRDs(ctx)
		if err != nil {
			return err
		}
		return b.cluster.DeletePath(ctx, crds)
	case sidecars:
		return b.clients.RemoveSidecars(ctx, w)
	case withTemplates:
		return b.cluster.Delete(ctx, b.templates)
	case policies:
		return b.clients.RemovePolicies(ctx, w)
	case rich:
		return b.clients.RemoveRich(ctx, w)
	default:
		return nil
	}
}

// findTemplates returns the ConfigMap with this tree's injection templates.
func findTemplates(ctx context.Context, dir string) ([]byte, error) {
	helms, err := charts.Helms(dir, "")
	if err != nil {
		return nil, err
	}
	chart, err := charts.Chart("istiod")
	if err != nil {
		return nil, err
	}
	manifest, err := helms[0].Run(ctx, "template", "istiod", chart, "-n", world.RootNamespace, "-s", "templates/injector-configmap.yaml")
	return []byte(manifest), err
}
