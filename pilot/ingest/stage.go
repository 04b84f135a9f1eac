package ingest

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// stages runs the stages of a World. The goroutine that commits owns it.
type stages struct {
	logger  *slog.Logger
	list    []derive.Stage
	last    []derive.Derivation // what each made when it last succeeded
	failed  []string            // how each failed in the last run; empty: it did not
	objects counting
	mesh    *mesh.Config        // by which the last run was
	rank    map[*kinds.Kind]int // place in kinds.All
	inputs  []*kinds.Object     // of the kinds that some stage reads, in the order of config.Sort
	number  uint64              // of the run
	guard   sync.Locker         // held while derived is changed
	derived map[kinds.Key]*made // what counts
	hidden  map[kinds.Key]bool  // keys that were derived and that another object has

	// What the last run looked up: a change of it makes another run.
	lookups    map[kinds.Key]bool
	selections []selection

	findings []diag.Diagnostic
	statuses []*derive.Status
	shared   []kinds.SharedSecret
}

// made is a derived object, and the last run in which it counted.
type made struct {
	derive.Derived
	run uint64
}

// counting finds the objects of sources that count.
type counting struct {
	get func(kinds.Key) *kinds.Object // or nil
	all func(*kinds.Kind) []*kinds.Object
}

// selection is a question that a stage asked of all objects of a kind and a namespace, and which keys answered it.
type selection struct {
	kind      *kinds.Kind
	namespace string
	labels    map[string]string
	found     map[kinds.Key]bool
}

// concerns reports whether a change may change the answer.
func (s selection) concerns(c kinds.Change) bool {
	return s.found[c.Key] || c.Object != nil && s.matches(c.Object)
}

func (s selection) matches(o *kinds.Object) bool {
	return o.Kind == s.kind && o.Namespace == s.namespace && o.Cluster == "" && kinds.Selects(s.labels, o.Labels)
}

func newStages(logger *slog.Logger, list []derive.Stage, objects counting, guard sync.Locker) *stages {
	return &stages{logger: logger, guard: guard, list: list, last: make([]derive.Derivation, len(list)), failed: make([]string, len(list)), objects: objects, rank: ranks(), derived: map[kinds.Key]*made{}, hidden: map[kinds.Key]bool{}}
}

func (s *stages) reads(k *kinds.Kind) bool {
	return slices.ContainsFunc(s.list, func(stage derive.Stage) bool { return slices.Contains(stage.Kinds, k) })
}

// apply takes the mesh configuration and the changes that the filter let through, and returns these with the changes of
// derived objects. It reports whether the stages ran.
func (s *stages) apply(batch []kinds.Change, m *mesh.Config) (out []kinds.Change, ran bool) {
	affected := s.mesh != m || slices.ContainsFunc(s.failed, func(failure string) bool { return failure != "" })
	s.mesh = m
	for _, c := range batch {
		if s.reads(c.Kind) {
			affected = true
			s.take(c)
		}
		_, derived := s.derived[c.Key]
		affected = affected || derived || s.hidden[c.Key] || s.lookups[c.Key] ||
			slices.ContainsFunc(s.selections, func(asked selection) bool { return asked.concerns(c) })
	}
	if !affected {
		return batch, false
	}
	changes := s.run()
	// Where a source's object goes, or comes, and a derived one has its key, one of the two changes counts.
	out = slices.DeleteFunc(slices.Clone(batch), func(c kinds.Change) bool { return s.derived[c.Key] != nil })
	out = append(out, changes...)
	config.Sort(out)
	return out, true
}

// take changes inputs.
func (s *stages) take(c kinds.Change) {
	at, found := slices.BinarySearchFunc(s.inputs, c.Key, func(o *kinds.Object, key kinds.Key) int { return s.compare(o.Key, key) })
	switch {
	case found && c.Object != nil:
		s.inputs[at] = c.Object
	case found:
		s.inputs = slices.Delete(s.inputs, at, at+1)
	case c.Object != nil:
		s.inputs = slices.Insert(s.inputs, at, c.Object)
	}
}

// compare orders keys as config.Sort does.
func (s *stages) compare(a, b kinds.Key) int {
	return cmp.Or(cmp.Compare(s.rank[a.Kind], s.rank[b.Kind]), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster))
}

func ranks() map[*kinds.Kind]int {
	rank := map[*kinds.Kind]int{}
	for i, k := range kinds.All() {
		rank[k] = i
	}
	return rank
}

// run derives everything anew, and returns what changed. An object that comes out equal keeps its pointer.
func (s *stages) run() (changes []kinds.Change) {
	s.number++
	s.hidden, s.findings, s.statuses, s.shared = map[kinds.Key]bool{}, nil, nil, nil
	count := 0
	s.lookups, s.selections = make(map[kinds.Key]bool, len(s.lookups)), nil
	derivedInputs := false // some stage reads what an earlier one derived
	for i, stage := range s.list {
		result := s.derive(i, derive.Input{Objects: s.objectsOf(stage.Kinds, derivedInputs), Mesh: s.mesh, Get: s.lookUp, Select: s.selectObjects})
		s.findings, s.statuses = append(s.findings, result.Findings...), append(s.statuses, result.Statuses...)
		s.shared = append(s.shared, result.Shared...)
		s.guard.Lock()
		for _, d := range result.Objects {
			key := d.Object.Key
			old := s.derived[key]
			if old != nil && old.run == s.number || s.objects.get(key) != nil {
				s.hidden[key] = true
				s.findings = append(s.findings, hiddenObject(stage, d))
				continue
			}
			count++
			if old == nil {
				s.derived[key] = &made{d, s.number}
				changes = append(changes, kinds.Change{Key: key, Object: d.Object})
			} else {
				if old.Object != d.Object && !config.Equal(old.Object, d.Object) {
					old.Object = d.Object
					changes = append(changes, kinds.Change{Key: key, Object: d.Object})
				}
				old.Origin, old.run = d.Origin, s.number
			}
			derivedInputs = derivedInputs || s.reads(key.Kind)
		}
		s.guard.Unlock()
	}
	if len(s.derived) == count {
		return changes
	}
	s.guard.Lock()
	defer s.guard.Unlock()
	for key, d := range s.derived {
		if d.run != s.number {
			delete(s.derived, key)
			if s.objects.get(key) == nil {
				changes = append(changes, kinds.Change{Key: key})
			}
		}
	}
	return changes
}

// derive returns what one stage makes. A stage that panics has its last Derivation, a finding, and a run at the next
// commit.
func (s *stages) derive(i int, in derive.Input) derive.Derivation {
	stage := s.list[i]
	err := safe.Do("stage "+stage.Name, func() { s.last[i] = stage.Derive(in) })
	if err == nil {
		s.failed[i] = ""
		return s.last[i]
	}
	if s.failed[i] != err.Error() {
		s.failed[i] = err.Error()
		s.logger.Error("recovered from a panic", "err", err, "stack", string(err.(*safe.Panic).Stack))
	}
	result := s.last[i]
	result.Findings = append(slices.Clip(result.Findings), diag.Diagnostic{
		Severity: diag.Error, Code: "Internal", Message: "what " + stage.Name + " derives is as it was before a fault of the server: " + err.Error(),
		Fix: "report it, with the object that changed last",
	})
	return result
}

// lookUp is Get of a derive.Input.
func (s *stages) lookUp(k kinds.Key) *kinds.Object {
	s.lookups[k] = true
	return s.objects.get(k)
}

// secrets returns the Secrets and ConfigMaps that the last run looked up, sorted.
func (s *stages) secrets() (list []kinds.Key) {
	for k := range s.lookups {
		if k.Cluster == "" && (k.Kind == kinds.Secret || k.Kind == kinds.ConfigMap) {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, compareCredentials)
	return list
}

// selectObjects is Select of a derive.Input.
func (s *stages) selectObjects(kind *kinds.Kind, namespace string, labels map[string]string) []*kinds.Object {
	asked := selection{kind, namespace, labels, map[kinds.Key]bool{}}
	list := slices.DeleteFunc(s.objects.all(kind), func(o *kinds.Object) bool { return !asked.matches(o) })
	for _, o := range list {
		asked.found[o.Key] = true
	}
	s.selections = append(s.selections, asked)
	slices.SortFunc(list, func(a, b *kinds.Object) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// objectsOf returns the objects of those kinds, as Derive gets them. Those that were derived in this run are among them
// if wanted.
func (s *stages) objectsOf(of []*kinds.Kind, derived bool) []*kinds.Object {
	out := make([]*kinds.Object, 0, len(s.inputs))
	for _, o := range s.inputs {
		if slices.Contains(of, o.Kind) {
			out = append(out, o)
		}
	}
	if !derived {
		return out
	}
	for key, d := range s.derived {
		if d.run == s.number && slices.Contains(of, key.Kind) {
			out = append(out, d.Object)
		}
	}
	slices.SortFunc(out, func(a, b *kinds.Object) int { return s.compare(a.Key, b.Key) })
	return out
}

func hiddenObject(stage derive.Stage, d derive.Derived) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "HiddenObject", Object: d.Origin.String(),
		Message: "the " + d.Object.String() + " that " + stage.Name + " makes of it does not count: there is another object of that name",
		Fix:     "rename the other object",
	}
}
