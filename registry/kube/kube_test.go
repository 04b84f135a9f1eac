package kube_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/internal/world"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

var update = world.UpdateFlag()

func start() (registry.Registry, func() string) {
	networks, _ := mesh.ParseNetworks("networks", []byte("networks: {far: {endpoints: [{fromCidr: 10.9.0.0/16}]}}"))
	r := kube.New(kube.Options{
		Cluster:  "Kubernetes",
		Networks: networks.Of("Kubernetes"),
		Gateways: map[string][]registry.Gateway{"named.edge.svc.cluster.local": {{Network: "named", Port: 15555}}},
	})
	return r, func() string {
		var b strings.Builder
		for _, c := range []struct {
			name  string
			count int
		}{{"pending endpoints", r.Pending()}, {"pods without IP", r.PodsWithoutIP()}, {"endpoints not ready", r.NotReady()}} {
			if c.count != 0 {
				fmt.Fprintf(&b, "%s: %d\n", c.name, c.count)
			}
		}
		for _, g := range r.Gateways() {
			fmt.Fprintf(&b, "gateway of %s at %s:%d, cluster %s\n", g.Network, g.Address, g.Port, g.Cluster)
		}
		return b.String()
	}
}

func TestTranscripts(t *testing.T) { world.Transcripts(t, "*.txtar", update, start) }

// TestEndpointsOfTheReferenceWorld compares endpoints with what a real istiod sent in the assignments of this world.
func TestEndpointsOfTheReferenceWorld(t *testing.T) {
	r, _ := start()
	tables := world.Sum(t, r, world.ParseFile(t, "testdata/world.yaml"))
	var got []string
	for k, l := range tables.Endpoints {
		for _, e := range l {
			for _, p := range tables.Services[k].Ports {
				if p.Name == e.ServicePort {
					got = append(got, fmt.Sprintf("%s:%d %s:%d %s tls=%s at %s/%s/%s %s;%s;%s;%s;%s", k.Host, p.Number, e.Address, e.Port,
						strings.ToUpper(e.Health.String()),
						e.TLSMode, e.Locality.Region, e.Locality.Zone, e.Locality.SubZone, e.Workload, e.Namespace, e.CanonicalName,
						e.CanonicalRevision, e.Cluster))
				}
			}
		}
	}
	slices.Sort(got)
	want, err := os.ReadFile("testdata/world.facts")
	must.Succeed(t, err)
	if d := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestHistories(t *testing.T) {
	world.Histories(t, world.ParseFile(t, "testdata/versions.yaml"), start)
}

// TestWithControllersServicesSelectNoPods checks that in a cluster the controllers decide which pods a service has: one
// without slices has none.
func TestWithControllersServicesSelectNoPods(t *testing.T) {
	const text = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec: {clusterIP: 10.0.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: a, labels: {app: web}}
status: {phase: Running, podIP: 10.1.0.1}
`
	for controllers, want := range map[bool]int{false: 1, true: 0} {
		tables := world.Sum(t, kube.New(kube.Options{Controllers: controllers}), world.Parse(t, text))
		if got := len(tables.Endpoints[registry.ServiceKey{Namespace: "a", Host: "web.a.svc.cluster.local"}]); got != want {
			t.Errorf("controllers %v: %d endpoints, want %d", controllers, got, want)
		}
	}
}
