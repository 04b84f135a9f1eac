package serviceentry_test

import (
	"slices"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/internal/world"
	"github.com/istiod-lite/istiod-lite/registry/serviceentry"
)

// limited starts a registry whose entries are limited to their namespaces, and hidden if these have the label tier:
// shut.
func limited() (registry.Registry, func() string) {
	m, found := mesh.Parse("mesh", []byte("serviceEntryVisibility: {applyToSidecars: true, defaultVisibility: NAMESPACE, policies: ["+
		"{visibility: NONE, matchingRules: [{namespaceSelector: {matchLabels: {tier: shut}}}]}]}"))
	if len(found) > 0 {
		panic(found)
	}
	r := serviceentry.New(serviceentry.Options{Cluster: "Kubernetes", Visibility: m.EntryVisibility()})
	return r, func() string { return "" }
}

// TestVisibility checks that the exportTo of services follows the labels of their namespace, and that entries that are
// visible nowhere have no endpoints.
func TestVisibility(t *testing.T) {
	r, _ := limited()
	for _, c := range []struct {
		change    string
		exportTo  []string
		endpoints int
	}{
		{`{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: e, namespace: a}, spec: {hosts: [x.example], exportTo: ["*"],
 ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}}`, []string{"."}, 1},
		{`{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {tier: shut}}}`, []string{"~"}, 0},
		{`{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {tier: other}}}`, []string{"."}, 1},
	} {
		changes := r.Apply(world.Parse(t, c.change))
		for k, s := range changes.Services {
			if !slices.Equal(s.ExportTo, c.exportTo) || len(changes.Endpoints[k]) != c.endpoints {
				t.Errorf("%s: exportTo %q, endpoints %v", c.change, s.ExportTo, changes.Endpoints[k])
			}
		}
		if len(changes.Services) != 1 || len(changes.Endpoints) != 1 {
			t.Errorf("%s: changes %+v", c.change, changes)
		}
	}
	if c := r.Apply(world.Parse(t, `{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {tier: third}}}`)); len(c.Services) > 0 {
		t.Errorf("a label that decides nothing changes %v", c.Services)
	}
}

func TestHistoriesWithVisibility(t *testing.T) {
	world.Histories(t, world.ParseFile(t, "testdata/versions.yaml"), limited)
}
