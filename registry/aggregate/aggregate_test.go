package aggregate_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/aggregate"
	"github.com/istiod-lite/istiod-lite/registry/internal/world"
	"github.com/istiod-lite/istiod-lite/registry/kube"
	"github.com/istiod-lite/istiod-lite/registry/mcs"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

var update = world.UpdateFlag()

func start() (registry.Registry, func() string) { return startWith(clusterset.Options{}) }

// startWith returns a registry with settings for the Multi-Cluster Services API.
func startWith(o clusterset.Options) (registry.Registry, func() string) {
	r := aggregate.New(aggregate.Options{
		Kube: func(id string) *kube.Registry {
			return kube.New(kube.Options{Cluster: cmp.Or(id, "Kubernetes"), Remote: id != ""})
		},
		Entries: serviceentry.New(serviceentry.Options{Cluster: "Kubernetes"}),
		Sets:    mcs.New(o, "cluster.local"),
	})
	return r, func() string {
		if len(r.Clusters()) == 0 {
			return ""
		}
		return fmt.Sprintf("clusters %v, pending %d\n", r.Clusters(), r.Pending())
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	return string(text)
}

func TestTranscripts(t *testing.T) { world.Transcripts(t, "*.txtar", update, start) }

func TestHistories(t *testing.T) {
	own := world.ParseFile(t, "testdata/versions.yaml")
	remote := world.ParseFile(t, "testdata/remote.yaml")
	world.Histories(t, slices.Concat(own, world.In("east", remote), world.In("west", own)), start)
}

// TestSets has what ServiceExports and ServiceImports change, with and without ClusterLocal.
func TestSets(t *testing.T) {
	world.Transcripts(t, "sets/*.txtar", update, startSets)
	world.Transcripts(t, "local/*.txtar", update, func() (registry.Registry, func() string) {
		return startWith(clusterset.Options{Discovery: true, Hosts: true, ClusterLocal: true})
	})
}

func startSets() (registry.Registry, func() string) {
	return startWith(clusterset.Options{Discovery: true, Hosts: true})
}

// TestHistoriesOfSets is TestHistories with ServiceExports and ServiceImports in three clusters.
func TestHistoriesOfSets(t *testing.T) {
	own := append(world.ParseFile(t, "testdata/versions.yaml"), world.ParseFile(t, "testdata/sets.yaml")...)
	remote := append(world.ParseFile(t, "testdata/remote.yaml"), world.ParseFile(t, "testdata/sets.yaml")...)
	world.Histories(t, slices.Concat(own, world.In("east", remote), world.In("west", own)), startSets)
}

// TestSetsAreOff checks that ServiceExports and ServiceImports change nothing unless the API is enabled, and that
// ServiceImports change nothing without Hosts.
func TestSetsAreOff(t *testing.T) {
	objects := append(world.ParseFile(t, "testdata/versions.yaml"), world.In("east", world.ParseFile(t, "testdata/remote.yaml"))...)
	sets := world.ParseFile(t, "testdata/sets.yaml")
	sets = append(sets, world.In("east", sets)...)
	for name, o := range map[string]clusterset.Options{"off": {}, "no hosts": {Discovery: true}} {
		r, _ := startWith(o)
		sum := world.Sum(t, r, objects)
		before := sum.Dump()
		imports := slices.DeleteFunc(slices.Clone(sets), func(c kinds.Change) bool { return o.Discovery && c.Kind == kinds.ServiceExport })
		if c := r.Apply(imports); !c.Empty() {
			t.Errorf("%s: changes %+v", name, c)
		}
		if confined := strings.Contains(before, "SameCluster"); confined != o.Discovery || strings.Contains(before, clusterset.Domain) {
			t.Errorf("%s: some endpoints are confined: %v", name, confined)
		}
	}
}

// TestClusterComesAndGoes checks that a cluster that was added and removed leaves the services, endpoints and workloads
// of the other clusters as they were.
func TestClusterComesAndGoes(t *testing.T) {
	r, _ := start()
	own := world.ParseFile(t, "testdata/versions.yaml")
	sum := world.Sum(t, r, own)
	before := sum.Dump()
	was := maps.Clone(sum.Services)
	remote := world.In("east", slices.Concat(world.ParseFile(t, "testdata/remote.yaml"), own))
	for _, batch := range [][]kinds.Change{remote, world.Delete(remote)} {
		must.Succeed(t, sum.Apply(r.Apply(batch)))
		if batch[0].Object != nil && (sum.Dump() == before || len(r.(*aggregate.Registry).Clusters()) != 1) {
			t.Fatal("the cluster changed nothing")
		}
	}
	if d := gocmp.Diff(before, sum.Dump()); d != "" {
		t.Errorf("(-before +after):\n%s", d)
	}
	for k, s := range was {
		if sum.Services[k] != s {
			t.Errorf("%v has a new pointer", k)
		}
	}
	if l := r.(*aggregate.Registry).Clusters(); len(l) != 0 {
		t.Errorf("clusters %v are left", l)
	}
}

// TestEndpointsOfServiceEntries compares endpoints with what a real istiod sent in the assignments and the DNS clusters
// of these ServiceEntries.
func TestEndpointsOfServiceEntries(t *testing.T) {
	r, _ := start()
	tables := world.Sum(t, r, world.ParseFile(t, "testdata/case.yaml"))
	var got []string
	for k, l := range tables.Endpoints {
		for _, e := range l {
			health := "-"
			if e.HealthKnown {
				health = strings.ToUpper(e.Health.String())
			}
			for _, p := range tables.Services[k].Ports {
				if p.Name == e.ServicePort {
					got = append(got, fmt.Sprintf("%s:%d %s:%d %s weight %d tls=%s at %s/%s/%s %s;%s;%s;%s;%s", k.Host, p.Number, e.Address,
						e.Port, health, max(1, e.Weight),
						e.TLSMode, e.Locality.Region, e.Locality.Zone, e.Locality.SubZone, e.Workload, e.Namespace, e.CanonicalName,
						e.CanonicalRevision, e.Cluster))
				}
			}
		}
	}
	slices.Sort(got)
	if d := gocmp.Diff(strings.Split(strings.TrimSpace(read(t, "testdata/case.facts")), "\n"), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestLookups checks that look-ups agree with the changes that the registry returned.
func TestLookups(t *testing.T) {
	r, _ := start()
	tables := world.Sum(t, r, world.ParseFile(t, "testdata/case.yaml"))
	a := r.(*aggregate.Registry)
	for k, s := range tables.Services {
		if a.Service(k) != s || !slices.Equal(a.Endpoints(k), tables.Endpoints[k]) {
			t.Errorf("%v: looked up %v with %d endpoints, changes have %v with %d", k, a.Service(k), len(a.Endpoints(k)), s,
				len(tables.Endpoints[k]))
		}
	}
	if none := (registry.ServiceKey{Namespace: "a", Host: "none"}); a.Service(none) != nil || a.Endpoints(none) != nil {
		t.Error("found a service that is not there")
	}
}
