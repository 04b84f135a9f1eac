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

// Handler takes the changes that happened together, in the order of Sort, each object at most once. A source calls it
// from one goroutine, and the next call comes after it has returned. The first call of a source brings everything that
// it has, and may be empty. The slice is the handler's to keep.
type Handler func([]kinds.Change)

// Source reads objects and hands what changes to a Handler. It has synced with the first call of the Handler.
type Source interface {
	Run(ctx context.Context) error // until ctx ends; called once
	Findings() []diag.Diagnostic   // what is wrong at present; must not be modified
}

// Equal reports whether two objects are the same for every reader. Where they were written does not count, and neither
// does the generation.
func Equal(a, b *kinds.Object) bool {
	if a.Key != b.Key || a.UID != b.UID || a.Relayed != b.Relayed || !a.Created.Equal(b.Created) || !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) ||
		!reflect.DeepEqual(a.Extra, b.Extra) {
		return false
	}
	if m, ok := a.Spec.(proto.Message); ok && a.Kind.Istio {
		return proto.Equal(m, b.Spec.(proto.Message))
	}
	return reflect.DeepEqual(a.Spec, b.Spec)
}

// Sort puts changes in the order of kinds.All, then of namespace, name and cluster. Those of one object stay in their
// order: the last counts.
func Sort(changes []kinds.Change) {
	rank := map[*kinds.Kind]int{}
	for i, k := range kinds.All() {
		rank[k] = i
	}
	slices.SortStableFunc(changes, func(a, b kinds.Change) int {
		return cmp.Or(cmp.Compare(rank[a.Kind], rank[b.Kind]), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
}
