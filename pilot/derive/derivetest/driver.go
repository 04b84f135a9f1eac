package derivetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// Driver runs one stage repeatedly.
type Driver struct {
	Last derive.Derivation // result of the last run

	stage   derive.Stage
	given   map[kinds.Key]*kinds.Object
	watched map[kinds.Key]bool
	parts   map[any]*derive.Part
	anew    bool
}

// New returns a Driver of a stage that has not run.
func New(stage derive.Stage) *Driver {
	return &Driver{stage: stage, given: map[kinds.Key]*kinds.Object{}, watched: map[kinds.Key]bool{}, parts: map[any]*derive.Part{}}
}

// TB is the part of testing.TB that a Driver needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// Run runs the stage with the changes since the last run, and returns its whole output: parts sorted by their keys as
// text, and statuses sorted by object.
func (d *Driver) Run(t TB, world map[kinds.Key]*kinds.Object, m *mesh.Config) derive.Part {
	t.Helper()
	in := derive.Input{Mesh: m, Anew: d.anew, Lookup: lookup{d, world}}
	d.anew = false
	for key, o := range world {
		if d.given[key] != o && d.knows(key) {
			in.Changed = append(in.Changed, kinds.Change{Key: key, Object: o})
		}
	}
	for key := range d.given {
		if world[key] == nil && d.knows(key) {
			in.Changed = append(in.Changed, kinds.Change{Key: key})
		}
	}
	config.Sort(in.Changed)
	d.given = maps.Clone(world)
	d.Last = d.stage.Derive(in)
	for key, p := range d.Last.Parts {
		if p == nil {
			delete(d.parts, key)
		} else {
			d.parts[key] = p
		}
	}
	for _, key := range d.Last.Unwatched {
		if !d.watched[key] {
			t.Errorf("%s is unwatched and was not watched", key)
		}
		delete(d.watched, key)
	}
	return d.all()
}

// lookup finds objects of a world for a Driver.
type lookup struct {
	d     *Driver
	world map[kinds.Key]*kinds.Object
}

func (l lookup) Get(key kinds.Key) *kinds.Object {
	l.d.watched[key] = true
	return l.world[key]
}

func (l lookup) Select(kind *kinds.Kind, namespace string, labels map[string]string) (list []*kinds.Object) {
	for key, o := range l.world {
		if key.Kind == kind && key.Namespace == namespace && key.Cluster == "" && kinds.Selects(labels, o.Labels) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *kinds.Object) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Forget makes the next run start from an empty state, as after a failed run.
func (d *Driver) Forget() {
	d.anew = true
	clear(d.given)
	clear(d.watched)
	clear(d.parts)
}

// Watched returns how many keys the stage watches.
func (d *Driver) Watched() int { return len(d.watched) }

func (d *Driver) knows(key kinds.Key) bool {
	return slices.Contains(d.stage.Kinds, key.Kind) || d.watched[key]
}

func (d *Driver) all() (out derive.Part) {
	text := func(key any) string { return fmt.Sprintf("%T %v", key, key) }
	for _, key := range slices.SortedFunc(maps.Keys(d.parts), func(a, b any) int { return cmp.Compare(text(a), text(b)) }) {
		p := d.parts[key]
		out.Objects, out.Findings = append(out.Objects, p.Objects...), append(out.Findings, p.Findings...)
		out.Statuses, out.Shared = append(out.Statuses, p.Statuses...), append(out.Shared, p.Shared...)
	}
	slices.SortStableFunc(out.Statuses, func(a, b *derive.Status) int { return cmp.Compare(a.Of.String(), b.Of.String()) })
	return out
}
