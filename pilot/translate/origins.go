package translate

import (
	"maps"
	"math"
	"slices"
	"weak"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Origins returns the objects from which Sets are made. It visits each resource once, for as long as the memo has it.
// It may be used by one goroutine at a time.
type Origins struct {
	memo  *envoy.Memo
	parts map[weak.Pointer[envoy.Resource]]parts
	sets  map[*envoy.Set][]kinds.Key // Sets of this round
	last  map[*envoy.Set][]kinds.Key // Sets of the previous round
}

// NewOrigins returns Origins that are empty before Refresh.
func (t *Translator) NewOrigins() *Origins {
	return &Origins{memo: t.memo, parts: map[weak.Pointer[envoy.Resource]]parts{}}
}

// Refresh begins a round of questions: it adds resources that were made since the last round, and drops deleted ones.
func (o *Origins) Refresh() {
	o.last, o.sets = o.sets, map[*envoy.Set][]kinds.Key{}
	maps.DeleteFunc(o.parts, func(p weak.Pointer[envoy.Resource], _ parts) bool { return p.Value() == nil })
	o.memo.EachKey(func(p weak.Pointer[envoy.Resource]) bool { _, ok := o.parts[p]; return ok },
		func(p weak.Pointer[envoy.Resource], key any) {
			x := partsOf(key)
			// Holding these objects does not keep them alive for the memo: the resource itself holds them as long as it
			// exists.
			x.objects = slices.Clip(x.objects)
			o.parts[p] = x
		})
}

// Of returns the keys of the objects from which the resources of a Set are made, in no order, each once.
func (o *Origins) Of(s *envoy.Set) []kinds.Key {
	if s == nil {
		return nil
	}
	if list, ok := o.sets[s]; ok {
		return list
	}
	if list, ok := o.last[s]; ok {
		o.sets[s] = list
		return list
	}
	w := newOriginWalk(math.MaxInt, func(r *envoy.Resource) (parts, bool) {
		p, ok := o.parts[weak.Make(r)]
		return p, ok
	})
	w.set(s)
	list := w.objects()
	o.sets[s] = list
	return list
}
