package translate

import (
	"maps"
	"math"
	"slices"
	"weak"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Origins says of which objects Sets are made. It looks at each resource once, for as long as the memo has it. One
// goroutine uses it at a time.
type Origins struct {
	memo  *envoy.Memo
	parts map[weak.Pointer[envoy.Resource]]parts
	sets  map[*envoy.Set][]kinds.Key // in this round
	last  map[*envoy.Set][]kinds.Key // in the round before
}

// NewOrigins returns Origins that know nothing before Refresh.
func (t *Translator) NewOrigins() *Origins {
	return &Origins{memo: t.memo, parts: map[weak.Pointer[envoy.Resource]]parts{}}
}

// Refresh begins a round of questions: it takes in what was made since the last one, and forgets what is gone.
func (o *Origins) Refresh() {
	o.last, o.sets = o.sets, map[*envoy.Set][]kinds.Key{}
	maps.DeleteFunc(o.parts, func(p weak.Pointer[envoy.Resource], _ parts) bool { return p.Value() == nil })
	o.memo.EachKey(func(p weak.Pointer[envoy.Resource]) bool { _, ok := o.parts[p]; return ok }, func(p weak.Pointer[envoy.Resource], key any) {
		x := partsOf(key)
		// What is held here is not forgotten by the memo. The resource holds it itself, as long as it is there.
		x.objects = slices.Clip(x.objects)
		o.parts[p] = x
	})
}

// Of returns the objects that the resources of a Set are made of, in no order, each once.
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
