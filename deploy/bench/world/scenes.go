package world

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The gateway: its pod, and the number of namespaces with routes for it.
const (
	GatewayNamespace = "gateways"
	GatewayWorkload  = "ingress"
	GatewayPod       = "ingress-7d8f9c6b4-0"
	GatewayIP        = "10.90.0.1"
	RouteNamespaces  = 50
)

// GatewayLabels returns the labels by which the Gateway selects its pod.
func GatewayLabels() map[string]string { return map[string]string{"app": GatewayWorkload} }

var (
	gateways = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "gateways"}
	sidecars = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "sidecars"}
)

func routeNamespace(i int) string { return "routes-" + strconv.Itoa(i%RouteNamespaces) }

func routeName(i int) string { return "route-" + strconv.Itoa(i) }

// Route returns route i of the gateway: a VirtualService with its own host. The mark is in a header that it sets.
func (w World) Route(i int, mark string) *unstructured.Unstructured {
	return istio("VirtualService", routeName(i), routeNamespace(i), map[string]any{
		"hosts": []any{routeName(i) + ".example.com"}, "gateways": []any{GatewayNamespace + "/" + GatewayWorkload},
		"http": []any{map[string]any{
			"match":   []any{map[string]any{"uri": map[string]any{"prefix": "/"}}},
			"route":   []any{map[string]any{"destination": map[string]any{"host": w.Host(i % w.Services)}}},
			"headers": map[string]any{"response": map[string]any{"set": map[string]any{"x-bench": mark}}},
		}},
	})
}

// SeedGateway adds a gateway with routes. It writes as many objects in parallel as there are workers.
func (c *Clients) SeedGateway(ctx context.Context, w World, routes, workers int) error {
	return c.seedGateway(ctx, w, routes, workers, []any{
		map[string]any{"port": map[string]any{"number": int64(AppPort), "name": "http", "protocol": "HTTP"}, "hosts": []any{"*"}},
	})
}

// seedGateway adds a gateway with these servers, and routes.
func (c *Clients) seedGateway(ctx context.Context, w World, routes, workers int, servers []any) error {
	if err := c.seedGatewayPod(ctx, w); err != nil {
		return err
	}
	gateway := istio("Gateway", GatewayWorkload, GatewayNamespace, map[string]any{
		"selector": map[string]any{"app": GatewayWorkload},
		"servers":  servers,
	})
	_, err := c.Dynamic.Resource(gateways).Namespace(GatewayNamespace).Create(ctx, gateway, metav1.CreateOptions{})
	if err := orExists(err); err != nil {
		return fmt.Errorf("seed the Gateway: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i := range routes {
		g.Go(func() error {
			_, err := c.Dynamic.Resource(virtualServices).Namespace(routeNamespace(i)).Create(ctx, w.Route(i, "seed"), metav1.CreateOptions{})
			if err := orExists(err); err != nil {
				return fmt.Errorf("seed route %d: %w", i, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// seedGatewayPod adds the pod of the gateway, and the namespaces of the gateway and of its routes.
func (c *Clients) seedGatewayPod(ctx context.Context, w World) error {
	for i := range RouteNamespaces + 1 {
		name := GatewayNamespace
		if i < RouteNamespaces {
			name = routeNamespace(i)
		}
		_, err := c.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err := orExists(err); err != nil {
			return fmt.Errorf("seed namespace %s: %w", name, err)
		}
	}
	pod := w.Pod(0, 0)
	pod.Name, pod.GenerateName, pod.Namespace, pod.Labels, pod.OwnerReferences = GatewayPod, "", GatewayNamespace, GatewayLabels(), nil
	pod.Spec.ServiceAccountName, pod.Status.PodIP, pod.Status.PodIPs = GatewayWorkload, GatewayIP, []corev1.PodIP{{IP: GatewayIP}}
	status := pod.Status
	pods := c.Core.CoreV1().Pods(GatewayNamespace)
	switch made, err := pods.Create(ctx, pod, metav1.CreateOptions{}); {
	case err == nil:
		made.Status = status
		if _, err := pods.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("seed the gateway's pod: %w", err)
		}
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("seed the gateway's pod: %w", err)
	}
	return nil
}

// RemoveGateway deletes everything that SeedGateway added, except the namespaces.
func (c *Clients) RemoveGateway(ctx context.Context) (err error) {
	for i := range RouteNamespaces {
		err = errors.Join(err, c.Dynamic.Resource(virtualServices).Namespace(routeNamespace(i)).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{}))
	}
	now := int64(0)
	err = errors.Join(err,
		c.Dynamic.Resource(gateways).Namespace(GatewayNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		c.Core.CoreV1().Pods(GatewayNamespace).Delete(ctx, GatewayPod, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	if err != nil {
		return fmt.Errorf("remove the gateway: %w", err)
	}
	return nil
}

// SeedSidecars adds Sidecars, so that each namespace sees only itself and the namespace of the control plane.
func (c *Clients) SeedSidecars(ctx context.Context, w World) error {
	for n := range w.Namespaces {
		own := istio("Sidecar", "default", w.Namespace(n), map[string]any{
			"egress": []any{map[string]any{"hosts": []any{"./*", RootNamespace + "/*"}}},
		})
		_, err := c.Dynamic.Resource(sidecars).Namespace(w.Namespace(n)).Create(ctx, own, metav1.CreateOptions{})
		if err := orExists(err); err != nil {
			return fmt.Errorf("seed a Sidecar: %w", err)
		}
	}
	return nil
}

// RemoveSidecars deletes them.
func (c *Clients) RemoveSidecars(ctx context.Context, w World) error {
	for n := range w.Namespaces {
		if err := c.Dynamic.Resource(sidecars).Namespace(w.Namespace(n)).Delete(ctx, "default", metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("remove a Sidecar: %w", err)
		}
	}
	return nil
}
