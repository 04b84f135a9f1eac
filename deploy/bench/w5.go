package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/cmd/load"
	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
)

// virtualServiceChanges is W5.
type virtualServiceChanges struct{}

func (virtualServiceChanges) name() string { return "W5" }
func (virtualServiceChanges) needs() needs {
	return needs{fleet: true, limit: true, length: usualLength}
}

func (virtualServiceChanges) about(options) string {
	return "One VirtualService after the other changes a header, one a second: from the write to the API server until the route reaches " +
		"each proxy."
}

func (virtualServiceChanges) rows() []row {
	return changeRows(map[mode]float64{delta: 25, stateOfTheWorld: 5}, map[mode]float64{delta: 40, stateOfTheWorld: 8},
		map[mode]float64{delta: 300})
}

func (virtualServiceChanges) run(ctx context.Context, s *session) (figures, error) {
	prefix := marks()
	return s.changed(ctx, changes{every: time.Second, kinds: routes(), find: load.FindMark(prefix), apply: func(n int) error {
		return s.mark(ctx, n%s.world.VirtualServices, load.Mark(prefix, n))
	}})
}

// marks returns a prefix that no mark of an earlier run has.
func marks() string { return fmt.Sprintf("changed-%d-", time.Now().UnixNano()) }

// routes returns the types in which a change of a route may come.
func routes() []load.Type { return []load.Type{load.Routes, load.VirtualHosts} }

// mark puts a mark into the VirtualService of a service.
func (s *session) mark(ctx context.Context, service int, mark string) error {
	return update(ctx, s.clients.Dynamic.Resource(world.VirtualServiceResource()), s.world.VirtualService(service, mark))
}

// update replaces the spec of an existing object in one request. It reads nothing first, because that would add to the
// latency.
func update(ctx context.Context, of dynamic.NamespaceableResourceInterface, changed *unstructured.Unstructured) error {
	patch, err := json.Marshal(map[string]any{"spec": changed.Object["spec"]})
	if err != nil {
		return err
	}
	_, err = of.Namespace(changed.GetNamespace()).Patch(ctx, changed.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
