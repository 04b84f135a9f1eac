package world

import (
	"net/netip"
	"testing"
)

// TestWorld: names and addresses are those of one object each, in the ranges kept for them, and slices, pods and rules
// are about one another.
func TestWorld(t *testing.T) {
	w := Sized(4000)
	taken := map[string]string{}
	take := func(address, what string, within netip.Prefix) {
		t.Helper()
		a, err := netip.ParseAddr(address)
		if err != nil || !within.Contains(a) {
			t.Fatalf("%s has address %s, which is not in %s", what, address, within)
		}
		if other, is := taken[address]; is {
			t.Fatalf("%s and %s have the address %s", what, other, address)
		}
		taken[address] = what
	}
	for s := range w.Services {
		service, slice := w.Service(s), w.EndpointSlice(s)
		take(service.Spec.ClusterIP, "service "+service.Name, netip.MustParsePrefix("10.96.0.0/12"))
		if len(slice.Endpoints) != w.Pods {
			t.Fatalf("%d endpoints of %d pods", len(slice.Endpoints), w.Pods)
		}
		for p, e := range slice.Endpoints {
			pod := w.Pod(s, p)
			take(pod.Status.PodIP, "pod "+pod.Name, netip.MustParsePrefix("10.128.0.0/9"))
			if e.Addresses[0] != pod.Status.PodIP || e.TargetRef.Name != pod.Name || e.TargetRef.Namespace != pod.Namespace ||
				*e.NodeName != pod.Spec.NodeName {
				t.Fatalf("endpoint %+v is not pod %s/%s", e, pod.Namespace, pod.Name)
			}
			for k, v := range service.Spec.Selector {
				if pod.Labels[k] != v {
					t.Fatalf("service %s does not select pod %s", service.Name, pod.Name)
				}
			}
		}
	}
	if few := Sized(20); few.VirtualServices != 20 || few.DestinationRules != 20 {
		t.Errorf("of 20 services: %+v", few)
	}
	mark := w.VirtualService(7, "mark").Object["spec"].(map[string]any)
	if host := mark["hosts"].([]any)[0]; host != w.DestinationRule(7).Object["spec"].(map[string]any)["host"] ||
		host != "svc-7.ns-7.svc.cluster.local" {
		t.Errorf("the VirtualService is for %v", host)
	}
}

// TestRoutes: each route has a name and a host of its own, they are spread over the namespaces, and all are bound to
// the gateway.
func TestRoutes(t *testing.T) {
	w, hosts, namespaces := Sized(20), map[any]bool{}, map[string]int{}
	for i := range 200 {
		r := w.Route(i, "mark")
		spec := r.Object["spec"].(map[string]any)
		hosts[spec["hosts"].([]any)[0]] = true
		namespaces[r.GetNamespace()]++
		if got := spec["gateways"].([]any)[0]; got != GatewayNamespace+"/"+GatewayWorkload {
			t.Fatalf("route %d is bound to %v", i, got)
		}
	}
	if len(hosts) != 200 || len(namespaces) != RouteNamespaces {
		t.Errorf("%d hosts in %d namespaces, want 200 in %d", len(hosts), len(namespaces), RouteNamespaces)
	}
}
