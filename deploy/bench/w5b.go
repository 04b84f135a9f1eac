package main

import (
	"context"
	"fmt"
	"time"

	"github.com/istiod-lite/istiod-lite/cmd/load"
	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
)

// gatewayRoutes is W5b, and with routes of the Gateway API W5c.
type gatewayRoutes struct{ gatewayAPI bool }

func (g gatewayRoutes) name() string {
	if g.gatewayAPI {
		return "W5c"
	}
	return "W5b"
}

func (g gatewayRoutes) needs() needs {
	if g.gatewayAPI {
		return needs{scene: kubeRoutes, length: usualLength}
	}
	return needs{scene: withRoutes, length: usualLength}
}

func (g gatewayRoutes) about(o options) string {
	if g.gatewayAPI {
		return fmt.Sprintf(
			"W5b of the Gateway API: one Gateway with %d HTTPRoutes over %d namespaces, each with a host of its own, and the control plane writes "+
				"their statuses. One after the other changes a header, one a second: from the write to the API server until the route reaches the "+
				"gateway.", o.routes, world.RouteNamespaces)
	}
	return fmt.Sprintf(
		"One gateway with %d HTTP routes, each a VirtualService with a host of its own, over %d namespaces. One after the other changes a "+
			"header, one a second: from the write to the API server until the route reaches the gateway.", o.routes, world.RouteNamespaces)
}

func (gatewayRoutes) rows() []row {
	most := 30.0
	rows := changeRows(nil, nil, nil)
	rows[1].atMost = &most
	return append(rows, row{name: "allocated a second", unit: "MB", ratio: both(10)}, row{name: "heap", unit: "MiB"},
		row{name: "full configuration", unit: "s"})
}

func (g gatewayRoutes) run(ctx context.Context, s *session) (figures, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if _, err := s.settle(ctx); err != nil {
		return nil, err
	}
	var err error
	if s.fleet, err = s.connect(load.Options{Proxies: 1, Identity: func(int) load.Identity { return gateway() }}); err != nil {
		return nil, err
	}
	if err := s.fleet.Wait(ctx); err != nil {
		return nil, err
	}
	if n := s.fleet.Counters().Types[load.Routes].Resources; n == 0 {
		return nil, fmt.Errorf("%s sends the gateway no routes", s.title)
	}
	before, err := s.heap(ctx)
	if err != nil {
		return nil, err
	}
	prefix, resource, route := marks(), world.VirtualServiceResource(), s.world.Route
	if g.gatewayAPI {
		resource, route = world.HTTPRouteResource(), s.world.HTTPRoute
	}
	f, err := s.changed(ctx, changes{every: time.Second, kinds: routes(), find: load.FindMark(prefix), apply: func(n int) error {
		return update(ctx, s.clients.Dynamic.Resource(resource), route(n%s.routes, load.Mark(prefix, n)))
	}})
	if err != nil {
		return nil, err
	}
	after, err := s.heap(ctx)
	f["allocated a second"] = float64(after.allocated-before.allocated) / 1e6 / f[making]
	f["heap"], f["full configuration"] = mib(after.live), s.fleet.SyncTimes()[0].Seconds()
	return f, err
}

func gateway() load.Identity {
	return load.Identity{
		Gateway: true, Pod: world.GatewayPod, Namespace: world.GatewayNamespace, IP: world.GatewayIP, Workload: world.GatewayWorkload,
		ServiceAccount: world.GatewayWorkload,
		Labels:         world.GatewayLabels(), Node: world.NodeName(0, 0), Region: "r1", Zone: world.Zone(0),
	}
}
