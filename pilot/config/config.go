package config

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Handler takes changes that happened together, in the order of Sort and at most one for each object. A source calls it
// from one goroutine, and waits until it returns. The first call of a source has all its objects, and may be empty. The
// handler may keep the slice.
type Handler func([]kinds.Change)

// Source reads objects and passes changes to a Handler. It has synced when the Handler's first call has returned.
type Source interface {
	Run(ctx context.Context) error // runs until ctx ends; called once
	Findings() []diag.Diagnostic   // current findings; must not be modified
}

// Equal reports whether two objects are the same for every reader. It ignores positions and generations.
func Equal(a, b *kinds.Object) bool {
	if a.Key != b.Key || a.UID != b.UID || a.Relayed != b.Relayed || !a.Created.Equal(b.Created) || !maps.Equal(a.Labels, b.Labels) ||
		!maps.Equal(a.Annotations, b.Annotations) ||
		!reflect.DeepEqual(a.Extra, b.Extra) {
		return false
	}
	if m, ok := a.Spec.(proto.Message); ok && a.Kind.Istio {
		return proto.Equal(m, b.Spec.(proto.Message))
	}
	return reflect.DeepEqual(a.Spec, b.Spec)
}

// Sort sorts changes by kind in the order of kinds.All, then by namespace, name and cluster. Changes of one object stay
// in order: the last one takes effect.
func Sort(changes []kinds.Change) {
	rank := map[*kinds.Kind]int{}
	for i, k := range kinds.All() {
		rank[k] = i
	}
	slices.SortStableFunc(changes, func(a, b kinds.Change) int {
		return cmp.Or(
			cmp.Compare(rank[a.Kind], rank[b.Kind]), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Cluster, b.Cluster),
		)
	})
}
