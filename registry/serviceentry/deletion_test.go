package serviceentry

import (
	"fmt"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/internal/world"
)

// TestDeletionLeavesNothing checks that deleting all objects empties every table of the registry.
func TestDeletionLeavesNothing(t *testing.T) {
	changes := world.ParseFile(t, "testdata/versions.yaml")
	r := New(Options{})
	key := registry.WorkloadKey{Kind: kinds.Pod, Namespace: "a", Name: "p"}
	w := &registry.Workload{WorkloadKey: key, Addresses: []string{"10.0.0.1"}, Labels: map[string]string{"app": "web"}, Ready: true}
	r.Update(nil, map[registry.WorkloadKey]*registry.Workload{key: w})
	for i := range changes {
		r.Apply(changes[i : i+1])
	}
	if len(r.allocator.slotOf) == 0 {
		t.Fatal("nothing has an address of our making, so that this test would show nothing")
	}
	r.Update(world.Delete(changes), map[registry.WorkloadKey]*registry.Workload{key: nil})
	if len(r.entries)+len(r.services)+len(r.workloads)+len(r.labels)+len(r.dirty) != 0 || !r.selectors.Empty() {
		t.Errorf("left: entries %v, services %v, workloads %v, dirty %v", r.entries, r.services, r.workloads, r.dirty)
	}
	if a := r.allocator; len(a.slotOf)+len(a.slots)+len(a.waiting)+len(a.changed) != 0 {
		t.Errorf("left: %+v", *a)
	}
}

// TestDisplacedServiceChanges checks that a host that takes over the address of a younger one changes the younger one's
// service too.
func TestDisplacedServiceChanges(t *testing.T) {
	entry := func(host string, created int64) kinds.Change {
		k := kinds.Key{Kind: kinds.ServiceEntry, Namespace: "a", Name: host}
		return kinds.Change{Key: k, Object: &kinds.Object{Key: k, Created: time.Unix(created, 0), Spec: &networkingv1.ServiceEntry{
			Hosts: []string{host}, Ports: []*networkingv1.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
			Resolution: networkingv1.ServiceEntry_DNS,
		}}}
	}
	byHash := map[uint32]string{}
	for i := 0; ; i++ {
		host := fmt.Sprintf("h%d.example.com", i)
		k := registry.ServiceKey{Namespace: "a", Host: host}
		other, collide := byHash[holding{key: k}.firstSlot()%slotCount]
		if !collide {
			byHash[holding{key: k}.firstSlot()%slotCount] = host
			continue
		}
		r := New(Options{})
		r.Apply([]kinds.Change{entry(host, 2)})
		before := r.Service(k)
		c := r.Apply([]kinds.Change{entry(other, 1)})
		after := c.Services[k]
		if after == nil || after.AutoAddress[0] == before.AutoAddress[0] ||
			r.Service(registry.ServiceKey{Namespace: "a", Host: other}).AutoAddress[0] != before.AutoAddress[0] {
			t.Errorf("%s took the address of %s, whose service became %+v", other, host, after)
		}
		if len(c.Endpoints) != 1 {
			t.Errorf("endpoints of %d services changed, want those of the new one", len(c.Endpoints))
		}
		c = r.Apply([]kinds.Change{{Key: entry(other, 1).Key}})
		if after = c.Services[k]; after == nil || !after.Equal(before) {
			t.Errorf("after the older went, the younger is %+v, not %+v", after, before)
		}
		return
	}
}
