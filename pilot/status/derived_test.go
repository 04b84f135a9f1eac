package status

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// derivedRig is a Derived with an API server and one Ingress.
type derivedRig struct {
	runner
	reconciler *Derived

	mu       sync.Mutex
	statuses map[kinds.Key]*derive.Status
	object   *kinds.Object
}

const ingressPath = "/apis/networking.k8s.io/v1/namespaces/a/ingresses/web"

func webKey() kinds.Key { return kinds.Key{Kind: kinds.Ingress, Namespace: "a", Name: "web"} }

func onDerivedRig(t *testing.T, test func(*derivedRig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &derivedRig{statuses: map[kinds.Key]*derive.Status{}, object: &kinds.Object{Key: webKey()}}
		r.reconciler = NewDerived(r, NewLimit(0), nil)
		r.start(t, r.reconciler)
		defer func() { r.stop() }()
		r.Put(ingressPath, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": map[string]any{"namespace": "a", "name": "web"},
			"status": map[string]any{"other": "x"},
		}})
		test(r)
	})
}

func (r *derivedRig) Statuses() []*derive.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.statuses))
}

func (r *derivedRig) Status(of kinds.Key) *derive.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.statuses[of]
}

func (r *derivedRig) Object(kinds.Key) *kinds.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.object
}

// derives derives a status, and returns how often it was written. If fresh is true, the object came from the API
// server meanwhile.
func (r *derivedRig) derives(fresh bool, value, current map[string]any) int {
	r.mu.Lock()
	if fresh {
		o := *r.object
		r.object = &o
	}
	if delete(r.statuses, webKey()); value != nil {
		r.statuses[webKey()] = &derive.Status{Of: webKey(), Value: value, Current: current}
	}
	r.mu.Unlock()
	r.controller.Notify(Request(webKey()))
	return r.pass(5 * time.Second)
}

func address(ip string) map[string]any {
	return map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": ip}}}}
}

// TestDerived: a status that stages derive is written if the object does not say it, and once, until the object comes
// back. What others wrote stays. Objects of files are not written.
func TestDerived(t *testing.T) {
	onDerivedRig(t, func(r *derivedRig) {
		writes := func(what string, want, got int) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %d writes, want %d", what, got, want)
			}
		}
		writes("new", 1, r.derives(false, address("192.0.2.1"), map[string]any{"loadBalancer": nil}))
		u := r.Server.Object(ingressPath)
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "loadBalancer", "ingress")
		if other, _, _ := unstructured.NestedString(u.Object, "status", "other"); len(list) != 1 || other != "x" {
			t.Errorf("status %v", u.Object["status"])
		}
		writes("it has not come back yet", 0, r.derives(false, address("192.0.2.1"), map[string]any{"loadBalancer": nil}))
		writes("it has come back", 0, r.derives(true, address("192.0.2.1"), address("192.0.2.1")))
		writes("another client wrote", 1, r.derives(true, address("192.0.2.1"), address("192.0.2.9")))
		writes("another value", 1, r.derives(false, address("192.0.2.2"), address("192.0.2.9")))
		r.object.Position = "x.yaml:1:1"
		writes("an object of a file", 0, r.derives(true, address("192.0.2.3"), address("192.0.2.9")))
	})
}

// TestDerivedOlderVersion: a status is written with a version that the API server has.
func TestDerivedOlderVersion(t *testing.T) {
	onDerivedRig(t, func(r *derivedRig) {
		const path = "/apis/gateway.networking.k8s.io/v1alpha2/namespaces/a/tcproutes/web"
		r.Put(path, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "gateway.networking.k8s.io/v1alpha2", "kind": "TCPRoute", "metadata": map[string]any{"namespace": "a", "name": "web"},
		}})
		key := kinds.Key{Kind: kinds.TCPRoute, Namespace: "a", Name: "web"}
		r.mu.Lock()
		r.statuses[key] = &derive.Status{Of: key, Value: map[string]any{"parents": []any{}}}
		r.mu.Unlock()
		r.controller.Notify(Request(key))
		r.pass(5 * time.Second)
		if _, written := r.Server.Object(path).Object["status"]; !written {
			t.Error("no status")
		}
	})
}

// TestSettled: nothing is kept of statuses that objects have or that are not wanted, and none is written again. A new
// term reconciles all.
func TestSettled(t *testing.T) {
	onDerivedRig(t, func(r *derivedRig) {
		r.derives(false, address("192.0.2.1"), nil)
		if len(r.reconciler.sent) != 1 {
			t.Error("a status that has not come back is not known")
		}
		r.derives(true, address("192.0.2.1"), address("192.0.2.1"))
		if len(r.reconciler.sent) != 0 {
			t.Error("a status that the object has is kept")
		}
		r.derives(true, address("192.0.2.2"), address("192.0.2.1"))
		r.derives(true, nil, nil)
		if len(r.reconciler.sent) != 0 {
			t.Error("a status that is not wanted any more is kept")
		}
		r.Drop(ingressPath)
		if n := r.derives(true, address("192.0.2.3"), nil); n != 1 {
			t.Errorf("%d writes of what is gone", n)
		}
		if n := r.pass(time.Hour); n > 61 {
			t.Errorf("%d writes in an hour of an object that is gone", n)
		}
		r.stop()
		r.begin()
		if n := r.pass(5 * time.Second); n != 1 {
			t.Errorf("%d writes in a new term", n)
		}
	})
}

// TestProgrammed: a Gateway and its listeners become Programmed when the Gateway is in force, and stay it while proxies
// connect again. Without a Progress, and where an address is missing, the status is what the stage says.
func TestProgrammed(t *testing.T) {
	const path = "/apis/gateway.networking.k8s.io/v1/namespaces/a/gateways/front"
	key := kinds.Key{Kind: kinds.KubeGateway, Namespace: "a", Name: "front"}
	says := func(generation int64, status string) []any {
		return []any{
			map[string]any{"type": "Accepted", "status": "True", "observedGeneration": float64(generation), "lastTransitionTime": "x"},
			map[string]any{"type": "Programmed", "status": status, "observedGeneration": float64(generation), "message": "fine",
				"lastTransitionTime": nil},
		}
	}
	value := func(generation int64, status string) map[string]any {
		return map[string]any{"conditions": says(generation, status), "listeners": []any{
			map[string]any{"name": "http", "attachedRoutes": float64(1), "conditions": says(generation, "True")},
		}}
	}
	for _, on := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d := &distributionRig{answers: map[string]progress.Answer{}, objects: map[kinds.Key]*kinds.Object{}}
			r := &derivedRig{statuses: map[kinds.Key]*derive.Status{}}
			r.reconciler = NewDerived(r, NewLimit(0), nil)
			if on {
				r.reconciler = NewDerived(r, NewLimit(0), d)
			}
			r.start(t, r.reconciler)
			defer func() { r.stop() }()
			synctest.Wait()
			r.Put(path, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": map[string]any{"namespace": "a", "name": "front"},
			}})
			// derives derives a status of a generation, as the stage does from what the object has.
			derives := func(generation int64, status string, a progress.Answer) {
				current, _, _ := unstructured.NestedMap(r.Server.Object(path).Object, "status")
				d.answer("front", a)
				r.mu.Lock()
				r.object = &kinds.Object{Key: key, Generation: generation}
				r.statuses[key] = &derive.Status{Of: key, Value: value(generation, status), Current: current}
				r.mu.Unlock()
				r.controller.Notify(Request(key))
			}
			check := func(what, want, message string) {
				t.Helper()
				s, _ := r.Server.Object(path).Object["status"].(map[string]any)
				l, _, _ := unstructured.NestedSlice(s, "listeners")
				if len(l) != 1 {
					t.Fatalf("%s: status %v", what, s)
				}
				of := []map[string]any{conditionOf(s, programmed), conditionOf(l[0].(map[string]any), programmed)}
				if !on && want == "False" {
					want, message = "True", "fine"
				}
				for _, c := range of {
					if c["status"] != want || c["message"] != message || c["lastTransitionTime"] == nil {
						t.Errorf("%s, on %v: %v, want %s %q", what, on, c, want, message)
					}
				}
				if conditionOf(s, "Accepted")["status"] != "True" || l[0].(map[string]any)["attachedRoutes"] == nil {
					t.Errorf("%s: status %v", what, s)
				}
			}
			derives(1, "True", behind(0, 2, "front-0.a"))
			r.pass(3 * time.Second)
			check("new", "False", "0 of 2 proxies")
			derives(1, "True", inForce(2)) // it has come back
			r.pass(10 * time.Second)
			check("in force", "True", "fine")
			derives(1, "True", behind(1, 2, "front-0.a"))
			r.pass(10 * time.Second)
			check("a proxy connects again", "True", "fine")
			derives(2, "True", behind(1, 2, "front-0.a"))
			if n := r.pass(100 * time.Millisecond); on && n != 0 {
				t.Errorf("%d writes before it is known whether a change is quick", n)
			}
			d.answer("front", inForce(2))
			r.pass(10 * time.Second)
			check("a quick change", "True", "fine")
			rejected := behind(1, 2)
			rejected.State, rejected.Proxies.Rejected = progress.Rejected, 1
			rejected.Owing = []progress.Owing{{Proxy: "front-0.a", State: string(progress.Rejected), Type: "lds", Message: "no"}}
			derives(3, "True", rejected)
			r.pass(10 * time.Second)
			check("rejected", "False", "front-0.a rejects it (lds): no")
			superseded := inForce(2)
			superseded.State = progress.Superseded
			derives(4, "True", superseded)
			if n := r.pass(10 * time.Second); on && n != 0 {
				t.Errorf("%d writes about a version that is superseded", n)
			}
			derives(5, "False", inForce(2))
			r.pass(10 * time.Second)
			s, _ := r.Server.Object(path).Object["status"].(map[string]any)
			if c := conditionOf(s, programmed); c["status"] != "False" || c["message"] != "fine" {
				t.Errorf("without an address: %v", c)
			}
			if n := len(r.reconciler.awaited); n != 0 {
				t.Errorf("%d Gateways are awaited", n)
			}
		})
	}
}
