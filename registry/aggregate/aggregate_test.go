package aggregate_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/aggregate"
	"github.com/istiod-lite/istiod-lite/registry/internal/world"
	"github.com/istiod-lite/istiod-lite/registry/kube"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

var update = world.UpdateFlag()

func start() (registry.Registry, func() string) {
	r := aggregate.New(kube.New(kube.Options{Cluster: "Kubernetes"}), serviceentry.New(serviceentry.Options{Cluster: "Kubernetes"}))
	return r, func() string { return "" }
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTranscripts(t *testing.T) { world.Transcripts(t, "*.txtar", update, start) }

func TestHistories(t *testing.T) { world.Histories(t, read(t, "testdata/versions.yaml"), start) }

// The facts are what a real istiod sent in the assignments and the DNS clusters of these ServiceEntries.
func TestEndpointsOfServiceEntries(t *testing.T) {
	r, _ := start()
	tables, err := world.Sum(r, world.Parse(t, read(t, "testdata/case.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for k, l := range tables.Endpoints {
		for _, e := range l {
			health := "-"
			if e.HealthKnown {
				health = strings.ToUpper(e.Health.String())
			}
			for _, p := range tables.Services[k].Ports {
				if p.Name == e.ServicePort {
					got = append(got, fmt.Sprintf("%s:%d %s:%d %s weight %d tls=%s at %s/%s/%s %s;%s;%s;%s;%s", k.Host, p.Number, e.Address, e.Port, health, max(1, e.Weight),
						e.TLSMode, e.Locality.Region, e.Locality.Zone, e.Locality.SubZone, e.Workload, e.Namespace, e.CanonicalName, e.CanonicalRevision, e.Cluster))
				}
			}
		}
	}
	slices.Sort(got)
	if d := cmp.Diff(strings.Split(strings.TrimSpace(read(t, "testdata/case.facts")), "\n"), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// What is asked of the registry agrees with what it told.
func TestLookups(t *testing.T) {
	r, _ := start()
	tables, err := world.Sum(r, world.Parse(t, read(t, "testdata/case.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	a := r.(*aggregate.Registry)
	for k, s := range tables.Services {
		if a.Service(k) != s || !slices.Equal(a.Endpoints(k), tables.Endpoints[k]) {
			t.Errorf("%v: looked up %v with %d endpoints, told %v with %d", k, a.Service(k), len(a.Endpoints(k)), s, len(tables.Endpoints[k]))
		}
	}
	if none := (registry.ServiceKey{Namespace: "a", Host: "none"}); a.Service(none) != nil || a.Endpoints(none) != nil {
		t.Error("found a service that is not there")
	}
}
