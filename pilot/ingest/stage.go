package ingest

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/galley/analysis"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// stages runs each stage of a World with the objects that have changed for it. The goroutine that commits owns it. It
// holds guard while it changes state that World publishes to other goroutines.
type stages struct {
	logger *slog.Logger
	list   []*stageRun
	world  *World
	mesh   *mesh.Config // mesh configuration of the last run
	guard  sync.Locker
	outputs

	// touched has the keys of derived objects that this commit may change, with the object in force before.
	touched map[kinds.Key]*kinds.Object
	secrets []kinds.Key // Secrets and ConfigMaps that stages watch, sorted; replaced, never modified
}

// stageRun is a stage with its output and its inputs.
type stageRun struct {
	derive.Stage
	number             int
	parts              map[any]*derive.Part
	failed             string             // error of the last run, or empty
	watched            map[kinds.Key]bool // keys that the stage looked up
	credentialsChanged bool               // Secrets or ConfigMaps in watched have changed
	selections         []selection        // selections of the last run
	pending            map[kinds.Key]bool // keys that have changed since the last run
	due                bool               // the stage runs even if pending is empty
}

// selection is a query of a stage for objects of a kind and a namespace by labels, and the keys in its result.
type selection struct {
	kind      *kinds.Kind
	namespace string
	labels    map[string]string
	found     map[kinds.Key]bool
}

// concerns reports whether a change may change the result.
func (s selection) concerns(c kinds.Change) bool {
	return s.found[c.Key] || c.Object != nil && s.matches(c.Object)
}

func (s selection) matches(o *kinds.Object) bool {
	return o.Kind == s.kind && o.Namespace == s.namespace && o.Cluster == "" && kinds.Selects(s.labels, o.Labels)
}

func newStages(w *World) *stages {
	s := &stages{logger: w.logger, world: w, guard: &w.mu, outputs: newOutputs()}
	for i, stage := range w.parts.Stages {
		s.list = append(
			s.list,
			&stageRun{Stage: stage, number: i, parts: map[any]*derive.Part{}, watched: map[kinds.Key]bool{}, pending: map[kinds.Key]bool{}},
		)
	}
	return s
}

func (s *stageRun) reads(k *kinds.Kind) bool { return slices.Contains(s.Kinds, k) }

// apply takes the mesh configuration and the changes that passed the filter, and returns them with the changes of
// derived objects. It reports whether a stage ran or a derived object changed.
func (s *stages) apply(batch []kinds.Change, m *mesh.Config) (out []kinds.Change, ran bool) {
	s.touched = map[kinds.Key]*kinds.Object{}
	var found []diag.Diagnostic
	for _, c := range batch {
		for _, stage := range s.list {
			if stage.reads(c.Kind) || stage.watched[c.Key] {
				stage.pending[c.Key] = true
			}
			stage.due = stage.due || slices.ContainsFunc(stage.selections, func(asked selection) bool { return asked.concerns(c) })
		}
		if s.claimed(c.Key) {
			found = append(found, s.settleAll(s.noted(c.Key))...)
		}
	}
	logFindings(s.logger, s.world.Located(bounded(found)))
	for _, stage := range s.list {
		if stage.due = stage.due || s.mesh != m; stage.due || len(stage.pending) > 0 {
			s.run(stage, m)
			ran = true
		}
	}
	s.mesh = m
	if !ran && len(s.touched) == 0 {
		return batch, false
	}
	// If a source's object replaces a derived one, or the reverse, only one of the two changes remains.
	out = slices.DeleteFunc(slices.Clone(batch), func(c kinds.Change) bool { return s.derived[c.Key] != nil })
	for key, before := range s.touched {
		switch now := s.derived[key]; {
		case now != nil && now.Object != before:
			out = append(out, kinds.Change{Key: key, Object: now.Object})
		case now == nil && before != nil && s.world.fromSource(key) == nil:
			out = append(out, kinds.Change{Key: key})
		}
	}
	config.Sort(out)
	return out, true
}

// run runs a stage. A stage that panics has no output and runs again at once, without its kept state. If it panics
// again, a finding reports it, and the stage runs again only when one of its inputs changes.
func (s *stages) run(stage *stageRun, m *mesh.Config) {
	in := derive.Input{Mesh: m, Anew: stage.failed != "", Lookup: lookup{stage, s.world}}
	stage.selections, stage.due = nil, false
	if in.Anew {
		stage.credentialsChanged = true
		clear(stage.watched)
		in.Changed = s.all(stage)
	} else {
		in.Changed = make([]kinds.Change, 0, len(stage.pending))
		for key := range stage.pending {
			in.Changed = append(in.Changed, kinds.Change{Key: key, Object: s.input(stage, key)})
		}
	}
	clear(stage.pending)
	config.Sort(in.Changed)
	var d derive.Derivation
	if err := safe.Do("stage "+stage.Name, func() { d = stage.Derive(in) }); err != nil {
		if stage.failed != err.Error() {
			s.logger.Error("recovered from a panic", "err", err, "stack", string(err.(*safe.Panic).Stack))
		}
		s.guard.Lock()
		stage.failed = err.Error()
		s.guard.Unlock()
		if !in.Anew {
			s.run(stage, m)
		}
		return
	}
	for _, key := range d.Unwatched {
		delete(stage.watched, key)
		stage.credentialsChanged = stage.credentialsChanged || isCredential(key)
	}
	parts := d.Parts
	if in.Anew { // parts that the stage did not make again are gone
		parts = maps.Clone(stage.parts)
		for key := range parts {
			parts[key] = nil
		}
		maps.Copy(parts, d.Parts)
	}
	s.replaceParts(stage, parts)
}

// replaceParts replaces parts of a stage.
func (s *stages) replaceParts(stage *stageRun, parts map[any]*derive.Part) {
	var found []diag.Diagnostic
	s.guard.Lock()
	stage.failed = ""
	claimed := map[kinds.Key]*kinds.Object{}
	for key, p := range parts {
		s.drop(stage, key, stage.parts[key], p, claimed)
	}
	for key, p := range parts {
		was := stage.parts[key]
		if p == nil {
			delete(stage.parts, key)
			continue
		}
		s.add(stage, key, was, p, claimed)
		stage.parts[key] = p
		found = append(found, newFindings(was, p)...)
	}
	s.guard.Unlock()
	found = append(found, s.settleAll(claimed)...)
	logFindings(s.logger, s.world.Located(bounded(found)))
}

// input returns the object that a stage sees for a key: the object of a source, or else the derived object of an
// earlier stage, or nil.
func (s *stages) input(stage *stageRun, key kinds.Key) *kinds.Object {
	if o := s.world.fromSource(key); o != nil || !stage.reads(key.Kind) {
		return o
	}
	if d := s.derived[key]; d != nil && d.stage.number < stage.number {
		return d.Object
	}
	return nil
}

// all returns all objects that a stage reads.
func (s *stages) all(stage *stageRun) (list []kinds.Change) {
	for _, kind := range stage.Kinds {
		for _, o := range s.world.allFromSources(kind) {
			list = append(list, kinds.Change{Key: o.Key, Object: o})
		}
	}
	for key, d := range s.derived {
		if stage.reads(key.Kind) && d.stage.number < stage.number {
			list = append(list, kinds.Change{Key: key, Object: d.Object})
		}
	}
	return list
}

func (s *stages) noted(key kinds.Key) map[kinds.Key]*kinds.Object {
	claimed := map[kinds.Key]*kinds.Object{}
	s.note(key, claimed)
	return claimed
}

// settleAll selects the object in force for each key: the one of a source, or else the derived object of the first
// stage. claimed has the derived objects that were in force before. Later stages see the changes. It returns findings
// for the objects that became hidden.
func (s *stages) settleAll(claimed map[kinds.Key]*kinds.Object) (found []diag.Diagnostic) {
	for key, was := range claimed {
		s.guard.Lock()
		now, hidden := s.settle(key, s.world.fromSource(key) != nil)
		s.guard.Unlock()
		found = append(found, hidden...)
		if _, known := s.touched[key]; !known {
			s.touched[key] = was
		}
		for _, stage := range s.list {
			if now != was && stage.reads(key.Kind) {
				stage.pending[key] = true
			}
		}
	}
	return found
}

// lookup is the derive.Lookup of a stage.
type lookup struct {
	*stageRun
	world *World
}

func (l lookup) Get(key kinds.Key) *kinds.Object {
	if !l.watched[key] {
		l.watched[key] = true
		l.credentialsChanged = l.credentialsChanged || isCredential(key)
	}
	return l.world.fromSource(key)
}

func (l lookup) Select(kind *kinds.Kind, namespace string, labels map[string]string) []*kinds.Object {
	asked := selection{kind, namespace, labels, map[kinds.Key]bool{}}
	list := slices.DeleteFunc(l.world.allFromSources(kind), func(o *kinds.Object) bool { return !asked.matches(o) })
	for _, o := range list {
		asked.found[o.Key] = true
	}
	l.selections = append(l.selections, asked)
	slices.SortFunc(list, func(a, b *kinds.Object) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func isCredential(k kinds.Key) bool {
	return k.Cluster == "" && (k.Kind == kinds.Secret || k.Kind == kinds.ConfigMap)
}

// credentials returns the Secrets and ConfigMaps that stages watch, sorted. The caller must not modify the result.
func (s *stages) credentials() []kinds.Key {
	if !slices.ContainsFunc(s.list, func(stage *stageRun) bool { return stage.credentialsChanged }) {
		return s.secrets
	}
	var list []kinds.Key
	for _, stage := range s.list {
		stage.credentialsChanged = false
		for key := range stage.watched {
			if isCredential(key) {
				list = append(list, key)
			}
		}
	}
	slices.SortFunc(list, compareKeys)
	s.secrets = slices.Compact(list)
	return s.secrets
}

// mostFindings bounds the findings of one code and severity, because one repeated mistake would fill pages.
const mostFindings = 250

// bounded sorts findings with compareFindings and keeps at most mostFindings of each code and severity. One more
// finding gives the number of dropped ones. It modifies the list.
func bounded(list []diag.Diagnostic) []diag.Diagnostic {
	slices.SortFunc(list, compareFindings)
	type group struct {
		code     string
		severity diag.Severity
	}
	count, more, worst := map[group]int{}, 0, diag.Info
	out := slices.DeleteFunc(list, func(d diag.Diagnostic) bool {
		of := group{d.Code, d.Severity}
		if count[of]++; count[of] <= mostFindings {
			return false
		}
		more, worst = more+1, max(worst, d.Severity)
		return true
	})
	if more > 0 {
		out = append(out, analysis.More(more, worst, "objects of which others are derived"))
	}
	return out
}

// findings returns the findings of the stages, bounded. The caller must hold guard or be the committing goroutine.
func (s *stages) findings() (list []diag.Diagnostic) {
	for _, stage := range s.list {
		for _, p := range stage.parts {
			list = append(list, p.Findings...)
		}
		if stage.failed != "" {
			list = append(list, diag.Diagnostic{
				Severity: diag.Error, Code: "Internal",
				Message: "stage " + stage.Name + " failed, and the objects that it derived before stay in force: " + stage.failed,
				Fix:     "report it, with the object that changed last",
			})
		}
	}
	return bounded(append(list, s.hiddenFindings()...))
}

// newFindings returns the findings of a part that its predecessor did not have.
func newFindings(before, now *derive.Part) []diag.Diagnostic {
	if before == nil || len(now.Findings) == 0 {
		return now.Findings
	}
	known := lists.Set(before.Findings)
	return slices.DeleteFunc(slices.Clone(now.Findings), func(d diag.Diagnostic) bool { return known[d] })
}

func compareFindings(a, b diag.Diagnostic) int {
	return cmp.Or(
		cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field),
		cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message),
	)
}

// logFindings logs each finding.
func logFindings(logger *slog.Logger, list []diag.Diagnostic) {
	for _, d := range list {
		level := slog.LevelWarn
		if d.Severity == diag.Error {
			level = slog.LevelError
		}
		logger.Log(context.Background(), level, "finding", "finding", d.String())
	}
}

// sortedStatuses returns statuses sorted by object.
func sortedStatuses(of map[kinds.Key]*derive.Status) []*derive.Status {
	return slices.SortedFunc(maps.Values(of), func(a, b *derive.Status) int { return compareKeys(a.Of, b.Of) })
}
