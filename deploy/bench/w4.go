package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/cmd/load"
)

// serviceComesAndGoes is W4.
type serviceComesAndGoes struct{}

func (serviceComesAndGoes) name() string { return "W4" }
func (serviceComesAndGoes) needs() needs { return needs{fleet: true, limit: true, length: usualLength} }

func (serviceComesAndGoes) about(options) string {
	return "A Service with endpoints is added, two seconds later it is deleted, and so on: from the creation until the route to it reaches " +
		"each proxy; CPU and bytes of a change are those of one addition and one deletion."
}

func (serviceComesAndGoes) rows() []row {
	return changeRows(map[mode]float64{delta: 25, stateOfTheWorld: 5}, map[mode]float64{delta: 20, stateOfTheWorld: 8},
		map[mode]float64{delta: 150})
}

func (serviceComesAndGoes) run(ctx context.Context, s *session) (figures, error) {
	const prefix = "bench-comes-"
	// the service after the last
	service, slice := s.world.Service(s.world.Services), s.world.EndpointSlice(s.world.Services)
	for i := range slice.Endpoints {
		slice.Endpoints[i].TargetRef = nil // without pods
	}
	services, slices := s.clients.Core.CoreV1().Services(service.Namespace), s.clients.Core.DiscoveryV1().EndpointSlices(service.Namespace)
	// A failed run may have left a service with the same address.
	old, err := services.List(ctx, metav1.ListOptions{LabelSelector: "app=" + service.Name})
	if err != nil {
		return nil, fmt.Errorf("look for a Service that was left: %w", err)
	}
	for _, o := range old.Items {
		if err := services.Delete(ctx, o.Name, metav1.DeleteOptions{}); err != nil {
			return nil, fmt.Errorf("delete a Service that was left: %w", err)
		}
		if err := slices.Delete(ctx, o.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("delete an EndpointSlice that was left: %w", err)
		}
	}
	return s.changed(ctx, changes{
		every: min(4*time.Second, s.length), kinds: routes(), find: load.FindMark(prefix),
		apply: func(n int) error {
			service.Name = load.Mark(prefix, n)
			slice.Name, slice.Labels[discoveryv1.LabelServiceName] = service.Name, service.Name
			if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err != nil {
				return err
			}
			// after the Service, as the controller of EndpointSlices does
			_, err := slices.Create(ctx, slice, metav1.CreateOptions{})
			return err
		},
		undo: func() error {
			return errors.Join(services.Delete(ctx, service.Name, metav1.DeleteOptions{}), slices.Delete(ctx, service.Name, metav1.DeleteOptions{}))
		},
	})
}
