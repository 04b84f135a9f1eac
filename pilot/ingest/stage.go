package ingest

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// stages runs the stages of a World. The goroutine that commits owns it.
type stages struct {
	list    []derive.Stage
	inputs  map[kinds.Key]*kinds.Object  // of the kinds that some stage reads
	derived map[kinds.Key]derive.Derived // what counts; each run makes it anew
	hidden  map[kinds.Key]bool           // keys that were derived and that another object has

	findings []diag.Diagnostic
	statuses []derive.Status
}

func newStages(list []derive.Stage) *stages {
	return &stages{list: list, inputs: map[kinds.Key]*kinds.Object{}, derived: map[kinds.Key]derive.Derived{}, hidden: map[kinds.Key]bool{}}
}

func (s *stages) reads(k *kinds.Kind) bool {
	return slices.ContainsFunc(s.list, func(stage derive.Stage) bool { return slices.Contains(stage.Kinds, k) })
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
	s.derived, s.hidden, s.findings, s.statuses = map[kinds.Key]derive.Derived{}, map[kinds.Key]bool{}, nil, nil
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

func hiddenObject(stage derive.Stage, d derive.Derived) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "HiddenObject", Object: d.Origin.String(),
		Message: "the " + d.Object.String() + " that " + stage.Name + " makes of it does not count: there is another object of that name",
		Fix:     "rename the other object",
	}
}
