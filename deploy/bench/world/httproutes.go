package world

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const gatewayGroup = "gateway.networking.k8s.io"

var (
	httpRoutes     = kubeGateways("httproutes")
	kubeGateway    = kubeGateways("gateways")
	gatewayClasses = kubeGateways("gatewayclasses")
	grants         = kubeGateways("referencegrants")
)

func kubeGateways(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: gatewayGroup, Version: "v1", Resource: resource}
}

// HTTPRouteResource returns the resource of HTTPRoutes.
func HTTPRouteResource() schema.GroupVersionResource { return httpRoutes }

func kubeGatewayObject(kind, name, namespace string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gatewayGroup + "/v1", "kind": kind, "spec": spec}}
	o.SetName(name)
	o.SetNamespace(namespace)
	return o
}

func parentRef() map[string]any {
	return map[string]any{"group": gatewayGroup, "kind": "Gateway", "name": GatewayWorkload, "namespace": GatewayNamespace}
}

// HTTPRoute returns Route as an object of the Gateway API.
func (w World) HTTPRoute(i int, mark string) *unstructured.Unstructured {
	return kubeGatewayObject("HTTPRoute", routeName(i), routeNamespace(i), map[string]any{
		"parentRefs": []any{parentRef()}, "hostnames": []any{routeName(i) + ".example.com"},
		"rules": []any{map[string]any{
			"matches":     []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": "/"}}},
			"backendRefs": []any{map[string]any{"name": Name(i % w.Services), "namespace": w.Namespace(i % w.Services), "port": int64(AppPort)}},
			"filters": []any{map[string]any{"type": "ResponseHeaderModifier", "responseHeaderModifier": map[string]any{
				"set": []any{map[string]any{"name": "x-bench", "value": mark}},
			}}},
		}},
	})
}

// SeedHTTPRoutes adds a Gateway of the Gateway API with HTTPRoutes, and what they need: the gateway's Service and pod,
// and grants. It writes as many objects in parallel as there are workers. The CustomResourceDefinitions must exist. The
// routes have the status that control planes write, so that none has to write thousands of them.
func (c *Clients) SeedHTTPRoutes(ctx context.Context, w World, routes, workers int) error {
	if err := c.seedGatewayPod(ctx, w); err != nil {
		return err
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: GatewayWorkload},
		Spec:       corev1.ServiceSpec{Selector: GatewayLabels(), Ports: []corev1.ServicePort{{Name: "http", Port: AppPort}}},
	}
	_, err := c.Core.CoreV1().Services(GatewayNamespace).Create(ctx, service, metav1.CreateOptions{})
	if err := orExists(err); err != nil {
		return fmt.Errorf("seed the gateway's Service: %w", err)
	}
	objects := []*unstructured.Unstructured{
		kubeGatewayObject("Gateway", GatewayWorkload, GatewayNamespace, map[string]any{
			"gatewayClassName": "istio",
			"addresses":        []any{map[string]any{"type": "Hostname", "value": GatewayWorkload + "." + GatewayNamespace + ".svc.cluster.local"}},
			"listeners": []any{map[string]any{
				"name": "http", "port": int64(AppPort), "protocol": "HTTP",
				"allowedRoutes": map[string]any{"namespaces": map[string]any{"from": "All"}},
			}},
		}),
		kubeGatewayObject("GatewayClass", "istio", "", map[string]any{"controllerName": "istio.io/gateway-controller"}),
	}
	for n := range w.Namespaces {
		const most = 16 // namespaces of one grant
		for first := 0; first < RouteNamespaces; first += most {
			var from []any
			for i := first; i < min(first+most, RouteNamespaces); i++ {
				from = append(from, map[string]any{"group": gatewayGroup, "kind": "HTTPRoute", "namespace": routeNamespace(i)})
			}
			objects = append(objects, kubeGatewayObject("ReferenceGrant", "routes-"+strconv.Itoa(first), w.Namespace(n), map[string]any{
				"from": from, "to": []any{map[string]any{"group": "", "kind": "Service"}},
			}))
		}
	}
	of := map[string]schema.GroupVersionResource{"Gateway": kubeGateway, "GatewayClass": gatewayClasses, "ReferenceGrant": grants}
	for _, o := range objects {
		_, err := c.Dynamic.Resource(of[o.GetKind()]).Namespace(o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{})
		if err := orExists(err); err != nil {
			return fmt.Errorf("seed %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i := range routes {
		g.Go(func() error {
			if err := c.seedHTTPRoute(ctx, w.HTTPRoute(i, "seed")); err != nil {
				return fmt.Errorf("seed route %d: %w", i, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// seedHTTPRoute creates a route with a status.
func (c *Clients) seedHTTPRoute(ctx context.Context, route *unstructured.Unstructured) error {
	client := c.Dynamic.Resource(httpRoutes).Namespace(route.GetNamespace())
	made, err := client.Create(ctx, route, metav1.CreateOptions{})
	if err != nil {
		return orExists(err)
	}
	condition := func(kind, message string) map[string]any {
		return map[string]any{
			"type": kind, "status": "True", "reason": kind, "message": message, "observedGeneration": made.GetGeneration(),
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}
	}
	made.Object["status"] = map[string]any{"parents": []any{map[string]any{
		"controllerName": "istio.io/gateway-controller", "parentRef": parentRef(),
		"conditions": []any{condition("Accepted", "Route was valid"), condition("ResolvedRefs", "All references resolved")},
	}}}
	_, err = client.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

// RemoveHTTPRoutes deletes everything that SeedHTTPRoutes added, except the namespaces.
func (c *Clients) RemoveHTTPRoutes(ctx context.Context, w World) (err error) {
	remove := func(r schema.GroupVersionResource, namespace string) {
		err = errors.Join(err, c.Dynamic.Resource(r).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	for i := range RouteNamespaces {
		remove(httpRoutes, routeNamespace(i))
	}
	for n := range w.Namespaces {
		remove(grants, w.Namespace(n))
	}
	remove(kubeGateway, GatewayNamespace)
	remove(gatewayClasses, "")
	now := int64(0)
	err = errors.Join(err, c.Core.CoreV1().Services(GatewayNamespace).Delete(ctx, GatewayWorkload, metav1.DeleteOptions{}),
		c.Core.CoreV1().Pods(GatewayNamespace).Delete(ctx, GatewayPod, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	if err != nil {
		return fmt.Errorf("remove the Gateway: %w", err)
	}
	return nil
}
