package ingest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Stage derives objects from objects, such as VirtualServices from routes of the Gateway API. Registries and snapshots
// treat a derived object like any other, so nothing after the stages knows of it.
type Stage struct {
	Name  string
	Kinds []*kinds.Kind // what Derive reads

	// Derive gets the objects of its kinds that count, in the order of config.Sort, and what earlier stages derived of
	// those kinds. It is pure: the same objects have the same Derivation. It runs again when any of them changed.
	// Objects are frozen, so it may keep what it made of one by the object's pointer.
	Derive func(objects []*kinds.Object) Derivation
}

// Derivation is what a stage made of its objects.
type Derivation struct {
	Objects  []Derived
	Findings []diag.Diagnostic
	Statuses []Status
}

// Derived is an object that a stage made, and the object that it was made of. An object of a source with the same key
// counts in its place, and so does one of an earlier stage.
type Derived struct {
	Object *kinds.Object
	Origin kinds.Key
}

// Status is what the status of an object should be, of the type that the object's API has for it.
type Status struct {
	Of    kinds.Key
	Value any
}

// stages runs the stages of a World. The goroutine that commits owns it.
type stages struct {
	list    []Stage
	inputs  map[kinds.Key]*kinds.Object // of the kinds that some stage reads
	derived map[kinds.Key]Derived       // what counts
	hidden  map[kinds.Key]bool          // keys that were derived and that another object has

	findings []diag.Diagnostic
	statuses []Status
}

func newStages(list []Stage) *stages {
	return &stages{list: list, inputs: map[kinds.Key]*kinds.Object{}, derived: map[kinds.Key]Derived{}, hidden: map[kinds.Key]bool{}}
}

func (s *stages) reads(k *kinds.Kind) bool {
	return slices.ContainsFunc(s.list, func(stage Stage) bool { return slices.Contains(stage.Kinds, k) })
}

// apply takes the changes that the filter let through, and returns them with those of derived objects. source returns
// the object of a source that counts, or nil.
func (s *stages) apply(batch []kinds.Change, source func(kinds.Key) *kinds.Object) []kinds.Change {
	affected := false
	for _, c := range batch {
		if s.reads(c.Kind) {
			affected = true
			if c.Object == nil {
				delete(s.inputs, c.Key)
			} else {
				s.inputs[c.Key] = c.Object
			}
		}
		_, derived := s.derived[c.Key]
		affected = affected || derived || s.hidden[c.Key]
	}
	if !affected {
		return batch
	}
	before := s.derived
	s.run(source)
	// Where a source's object goes, or comes, and a derived one has its key, one of the two changes counts.
	out := slices.DeleteFunc(slices.Clone(batch), func(c kinds.Change) bool { _, derived := s.derived[c.Key]; return derived })
	for key, d := range s.derived {
		if before[key].Object != d.Object {
			out = append(out, kinds.Change{Key: key, Object: d.Object})
		}
	}
	for key := range before {
		if _, still := s.derived[key]; !still && source(key) == nil {
			out = append(out, kinds.Change{Key: key})
		}
	}
	config.Sort(out)
	return out
}

// run derives everything anew. An object that comes out equal keeps its pointer.
func (s *stages) run(source func(kinds.Key) *kinds.Object) {
	before := s.derived
	s.derived, s.hidden, s.findings, s.statuses = map[kinds.Key]Derived{}, map[kinds.Key]bool{}, nil, nil
	for _, stage := range s.list {
		result := stage.Derive(s.objectsOf(stage.Kinds))
		s.findings, s.statuses = append(s.findings, result.Findings...), append(s.statuses, result.Statuses...)
		for _, d := range result.Objects {
			key := d.Object.Key
			if _, taken := s.derived[key]; taken || source(key) != nil {
				s.hidden[key] = true
				s.findings = append(s.findings, hiddenObject(stage, d))
				continue
			}
			if old := before[key].Object; old != nil && config.Equal(old, d.Object) {
				d.Object = old
			}
			s.derived[key] = d
		}
	}
}

// objectsOf returns the objects of those kinds, as Derive gets them.
func (s *stages) objectsOf(wanted []*kinds.Kind) []*kinds.Object {
	var changes []kinds.Change
	for key, o := range s.inputs {
		if slices.Contains(wanted, key.Kind) {
			changes = append(changes, kinds.Change{Key: key, Object: o})
		}
	}
	for key, d := range s.derived {
		if slices.Contains(wanted, key.Kind) {
			changes = append(changes, kinds.Change{Key: key, Object: d.Object})
		}
	}
	config.Sort(changes)
	out := make([]*kinds.Object, 0, len(changes))
	for _, c := range changes {
		out = append(out, c.Object)
	}
	return out
}

func hiddenObject(stage Stage, d Derived) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "HiddenObject", Object: d.Origin.String(),
		Message: "the " + d.Object.String() + " that " + stage.Name + " makes of it does not count: there is another object of that name",
		Fix:     "rename the other object",
	}
}

// sorted returns what was derived, in the order of keys.
func (s *stages) sorted() []Derived {
	return slices.SortedFunc(maps.Values(s.derived), func(a, b Derived) int {
		return cmp.Compare(a.Object.Key.String(), b.Object.Key.String())
	})
}
