package derive

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Objects is the input of a stage made by Whole.
type Objects struct {
	List []*kinds.Object // objects of the stage's kinds, in the order of config.Sort
	Mesh *mesh.Config
	Lookup
}

// asking is a Lookup that records the requested keys.
type asking struct {
	Lookup
	asked map[kinds.Key]bool
}

func (a asking) Get(key kinds.Key) *kinds.Object {
	a.asked[key] = true
	return a.Lookup.Get(key)
}

// Whole returns a stage that derives everything in each run, in one part. It is meant for few objects, because each run
// costs as much as there are objects. derive may cache results by the pointer of an object.
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
