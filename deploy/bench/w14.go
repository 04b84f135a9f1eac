package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/cmd/load"
	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
)

// policyChanges is W14.
type policyChanges struct{}

func (policyChanges) name() string { return "W14" }

func (policyChanges) needs() needs {
	return needs{fleet: true, scene: policies, length: usualLength}
}

func (policyChanges) about(options) string {
	return "In the mesh of W13 an AuthorizationPolicy for all workloads of one namespace changes once a second: from the write to the " +
		"API server until the listener reaches each proxy of the namespace. The bytes that other proxies receive are an exact sum. " +
		"Then the AuthorizationPolicy of the root namespace changes, which applies to all workloads."
}

func (policyChanges) rows() []row {
	none := 0.0
	return []row{
		{name: "own namespace: p50", unit: "ms"},
		{name: "own namespace: p99", unit: "ms", ratio: both(25)},
		{name: "own namespace: CPU a change", unit: "ms", ratio: both(20)},
		{name: "own namespace: received by a proxy of it, a change", unit: "kB"},
		{name: "own namespace: received by the others", unit: "bytes", atMost: &none, informative: true},
		{name: "root namespace: p50", unit: "ms"},
		{name: "root namespace: p99", unit: "ms"},
		{name: "root namespace: CPU a change", unit: "ms", ratio: both(8)},
		{name: "root namespace: received by a proxy, a change", unit: "kB"},
		{name: "streams that ended", informative: true},
	}
}

func (policyChanges) run(ctx context.Context, s *session) (figures, error) {
	within := func(proxy int) bool { return proxy%s.world.Services%s.world.Namespaces == changingNamespace }
	change := func(to func(int) bool, policy func(mark string) *unstructured.Unstructured) (figures, error) {
		prefix := marks()
		return s.changed(ctx,
			changes{every: time.Second, kinds: []load.Type{load.Listeners}, find: load.FindMark(prefix), to: to, apply: func(n int) error {
				return update(ctx, s.clients.Dynamic.Resource(world.AuthorizationPolicyResource()), policy(load.Mark(prefix, n)))
			}})
	}
	if _, err := s.settle(ctx); err != nil { // until then, earlier changes have arrived
		return nil, err
	}
	own, others := s.received(within)
	one, err := change(within, func(mark string) *unstructured.Unstructured {
		return s.world.AuthorizationPolicy(changingNamespace, mark)
	})
	if err != nil {
		return nil, err
	}
	ownNow, othersNow := s.received(within)
	root, err := change(nil, world.RootPolicy)
	if err != nil {
		return nil, err
	}
	return figures{
		"own namespace: p50": one["p50"], "own namespace: p99": one["p99"], "own namespace: CPU a change": one["CPU a change"],
		"own namespace: received by a proxy of it, a change": kB(ownNow-own) / one["changes"] / float64(s.count(within)),
		"own namespace: received by the others":              float64(othersNow - others),
		"root namespace: p50":                                root["p50"], "root namespace: p99": root["p99"],
		"root namespace: CPU a change":                  root["CPU a change"],
		"root namespace: received by a proxy, a change": root["received by a proxy a change"],
		"streams that ended":                            one["streams that ended"] + root["streams that ended"],
	}, nil
}
