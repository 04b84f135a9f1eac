package main

import (
	"context"

	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
)

// scene is what some workloads need the world to have, and others not.
type scene string

const (
	plain      scene = ""
	withRoutes scene = "a gateway with routes"
	sidecars   scene = "a Sidecar in each namespace"
	policies   scene = "policies in each namespace"
)

func scenes() []scene { return []scene{plain, withRoutes, sidecars, policies} }

// set makes what the scene has, and clear takes it away. What a run that failed has left is made anew.
func (b *bench) set(ctx context.Context, at scene, w world.World) error {
	switch at {
	case withRoutes:
		return b.clients.SeedGateway(ctx, w, b.routes, seeders)
	case sidecars:
		return b.clients.SeedSidecars(ctx, w)
	case policies:
		return b.clients.SeedPolicies(ctx, w, seeders)
	default:
		return nil
	}
}

func (b *bench) clear(ctx context.Context, at scene, w world.World) error {
	switch at {
	case withRoutes:
		return b.clients.RemoveGateway(ctx)
	case sidecars:
		return b.clients.RemoveSidecars(ctx, w)
	case policies:
		return b.clients.RemovePolicies(ctx, w)
	default:
		return nil
	}
}
