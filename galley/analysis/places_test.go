package analysis

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// labels are the labels of an endpoint.
type labels map[string]string

func (l labels) Lookup(name string) (string, bool) {
	value, ok := l[name]
	return value, ok
}

const zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"

// countedReads is a World whose hosts have three endpoints. It counts how often they are read.
type countedReads struct {
	World
	reads *int
}

func (c countedReads) Endpoints(string) iter.Seq[Labels] {
	*c.reads++
	return func(yield func(Labels) bool) {
		_ = yield(labels{zone: "z2"}) && yield(labels{zone: "z1"}) && yield(labels{})
	}
}

// TestPlacesAreReadOnce: a subset of a place where no endpoint runs is a finding, and a rule with many subsets reads
// the endpoints of its host once for each label.
func TestPlacesAreReadOnce(t *testing.T) {
	var text strings.Builder
	text.WriteString(`
apiVersion: v1
kind: Service
metadata: {name: a, namespace: a}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: a}
spec:
  host: a
  subsets:
  - {name: nowhere, labels: {` + zone + `: z9}}
  - {name: unknown, labels: {` + region + `: r1}}
`)
	for i := range 50 {
		fmt.Fprintf(&text, "  - {name: s%d, labels: {%s: z%d}}\n", i, zone, i%2+1)
	}
	reads := 0
	found := Run(decode(t, text.String()), Options{Domain: "cluster.local", Mesh: mesh.Default(), World: countedReads{reads: &reads}})
	if reads != 2 {
		t.Errorf("the endpoints are read %d times, want 2", reads)
	}
	var fixes []string
	for _, d := range found {
		if strings.Contains(d.Message, "is in this place") {
			fixes = append(fixes, d.Fix)
		}
	}
	if got, want := strings.Join(fixes, "; "), zone+" is one of z1, z2 there; remove "+region+": no endpoint there has it"; got != want {
		t.Errorf("fixes: %s, want %s", got, want)
	}
}
