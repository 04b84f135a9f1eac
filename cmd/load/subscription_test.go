package load

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

// cluster encodes a Cluster with EDS and the given assignment.
func cluster(name, assignment string) resource {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), edsCluster)
	b = protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType),
		protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), assignment))
	return resource{name: name, body: b}
}

// After any sequence of responses, a proxy is subscribed to exactly the names in the resources that it holds.
func TestSubscription(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.Bool().Draw(t, "whole")
		s, has, subscribed := newSubscription(Endpoints), map[string]string{}, map[string]bool{}
		for range rapid.IntRange(1, 12).Draw(t, "responses") {
			r := response{kind: Clusters}
			if whole {
				has = map[string]string{}
			}
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 4, rapid.ID).Draw(t, "clusters") {
				assignment := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "assignment") // several clusters may name one assignment
				has[name] = assignment
				r.resources = append(r.resources, cluster(name, assignment))
			}
			if !whole {
				for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.ID).Draw(t, "removed") {
					if !slices.ContainsFunc(r.resources, func(x resource) bool { return x.name == name }) {
						delete(has, name)
						r.removed = append(r.removed, name)
					}
				}
			}
			added, gone := s.update(r, whole)
			for _, name := range added {
				if subscribed[name] {
					t.Fatalf("%s is subscribed to again", name)
				}
				subscribed[name] = true
			}
			for _, name := range gone {
				if !subscribed[name] {
					t.Fatalf("%s is left though not subscribed to", name)
				}
				delete(subscribed, name)
			}
			want := map[string]bool{}
			for _, assignment := range has {
				want[assignment] = true
			}
			if len(want) != len(subscribed) {
				t.Fatalf("subscribed to %v, want %v", subscribed, want)
			}
			for name := range want {
				if !subscribed[name] || s.count[name] == 0 {
					t.Fatalf("not subscribed to %s", name)
				}
			}
		}
	})
}
