package cohort_test

import (
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// TestSelf checks which service and which endpoints a proxy's cluster of its own workload has: the first port of the
// oldest service, and the endpoints of its ReplicaSet in its region.
func TestSelf(t *testing.T) {
	older := *web
	older.Host, older.Name, older.Ports = "older.a.svc.cluster.local", "older", web.Ports[3:]
	newer := *web
	newer.Created = time.Unix(2, 0)
	b := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Cluster: "c", Mesh: mesh.Default(), Catalog: catalog.Features()})
	w := pod("web-0", "10.1.0.1", map[string]string{"pod-template-hash": "1"})
	b.ApplyRegistry(registry.Changes{
		Services:  map[registry.ServiceKey]*registry.Service{newer.Key(): &newer, older.Key(): &older},
		Workloads: map[registry.WorkloadKey]*registry.Workload{w.WorkloadKey: w},
	})
	x := scope.NewIndex(b.Commit(time.Time{}), nil)
	p := sidecar("web-0", "10.1.0.1")
	if got := resolve(x, p).Self; got != (cohort.Self{}) {
		t.Errorf("a proxy without the cluster has %+v", got)
	}
	p.SelfDiscovery = true
	self := resolve(x, p).Self
	if want := (cohort.Self{Host: older.Host, Port: 90, Workload: "web", Template: "1", Region: "r1"}); self != want {
		t.Errorf("%+v, want %+v: port 53 is of UDP", self, want)
	}
	p.Generator = node.GRPC
	if got := resolve(x, p).Self; got != (cohort.Self{}) {
		t.Errorf("an application without a proxy has %+v", got)
	}
	p.Generator, p.Name = "", "nowhere"
	p.IPs, p.Labels = []string{"10.1.0.9"}, nil
	if got := resolve(x, p).Self; got != (cohort.Self{}) {
		t.Errorf("a proxy without a service has %+v", got)
	}

	for change, want := range map[string]bool{
		"": true, "workload": false, "template": false, "rollout": false, "region": false, "zone": true,
	} {
		e := w.Endpoint("http", 8080)
		e.Labels = map[string]string{"pod-template-hash": "1", "version": "v2"}
		switch change {
		case "workload":
			e.Workload = "other"
		case "template":
			e.Labels["pod-template-hash"] = "2"
		case "rollout":
			e.Labels["rollouts-pod-template-hash"] = "2"
		case "region":
			e.Locality.Region = "r2"
		case "zone":
			e.Locality.Zone = "z2"
		}
		if self.Includes(e) != want {
			t.Errorf("another %s: included %v", change, !want)
		}
		if !(cohort.Self{}).Includes(e) {
			t.Errorf("another %s: the zero Self excludes it", change)
		}
	}
}
