package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/bench/load"
	"github.com/istiod-lite/istiod-lite/deploy/bench/world"
)

// virtualServiceChanges is W5.
type virtualServiceChanges struct{}

func (virtualServiceChanges) name() string  { return "W5" }
func (virtualServiceChanges) onFleet() bool { return true }

func (virtualServiceChanges) about() string {
	return "One VirtualService after the other changes a header, one a second: from the write to the API server until the route reaches each proxy."
}

func (virtualServiceChanges) rows() []row {
	return changeRows(map[mode]float64{delta: 25, stateOfTheWorld: 5}, map[mode]float64{delta: 40, stateOfTheWorld: 8}, map[mode]float64{delta: 300})
}

func (virtualServiceChanges) run(ctx context.Context, s *session) (figures, error) {
	// Marks of earlier runs are still in the world.
	prefix := fmt.Sprintf("changed-%d-", time.Now().UnixNano())
	return s.changed(ctx, changes{every: time.Second, kind: load.Routes, find: load.FindMark(prefix), apply: func(n int) error {
		service := n % s.world.VirtualServices
		services := s.clients.Dynamic.Resource(world.VirtualServiceResource()).Namespace(s.world.Namespace(service))
		old, err := services.Get(ctx, world.Name(service), metav1.GetOptions{})
		if err != nil {
			return err
		}
		changed := s.world.VirtualService(service, load.Mark(prefix, n))
		changed.SetResourceVersion(old.GetResourceVersion())
		_, err = services.Update(ctx, changed, metav1.UpdateOptions{})
		return err
	}})
}
