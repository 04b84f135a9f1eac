package derive

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Objects is what a stage of Whole may read.
type Objects struct {
	List []*kinds.Object // of the stage's kinds, in the order of config.Sort
	Mesh *mesh.Config
	Lookup
}

// asking is a Lookup that notes which keys it was asked for.
type asking struct {
	Lookup
	asked map[kinds.Key]bool
}

func (a asking) Get(key kinds.Key) *kinds.Object {
	a.asked[key] = true
	return a.Lookup.Get(key)
}

// Whole returns a stage that makes everything anew in each run, in one part. That is for few objects: a run costs as
// much as there are. It may keep what it made of an object by the object's pointer.
func Whole(name string, of []*kinds.Kind, derive func(Objects) Part) Stage {
	objects := map[kinds.Key]*kinds.Object{}
	watched := map[kinds.Key]bool{}
	return Stage{Name: name, Kinds: of, Derive: func(in Input) (d Derivation) {
		if in.Anew {
			clear(objects)
			clear(watched)
		}
		for _, c := range in.Changed {
			switch {
			case !slices.Contains(of, c.Kind):
			case c.Object == nil:
				delete(objects, c.Key)
			default:
				objects[c.Key] = c.Object
			}
		}
		list := make([]kinds.Change, 0, len(objects))
		for key, o := range objects {
			list = append(list, kinds.Change{Key: key, Object: o})
		}
		config.Sort(list)
		asked := map[kinds.Key]bool{}
		all := Objects{List: make([]*kinds.Object, len(list)), Mesh: in.Mesh, Lookup: asking{in.Lookup, asked}}
		for i, c := range list {
			all.List[i] = c.Object
		}
		p := derive(all)
		d.Parts = map[any]*Part{name: &p}
		for key := range watched {
			if !asked[key] {
				d.Unwatched = append(d.Unwatched, key)
			}
		}
		watched = asked
		return d
	}}
}
