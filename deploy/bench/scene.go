package main

import (
	"context"

	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
)

// scene is what some workloads need the world to have, and others not.
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

// set makes what the scene has, and clear takes it away. What a run that failed has left is made anew.
func (b *bench) set(ctx context.Context, at scene, w world.World) error {
	switch at {
	case withRoutes:
		return b.clients.SeedGateway(ctx, w, b.routes, seeders)
	case kubeRoutes:
		crds, err := cluster.GatewayCRDs(ctx)
		if err != nil {
			return err
		}
		if err := b.cluster.InstallCRDs(ctx, crds); err != nil { // not before: control planes follow these kinds once they are there
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

// findTemplates returns the ConfigMap with the templates of injection that this tree's chart makes.
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
