package ingest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// merged holds the objects of all sources of a World by key, in order of precedence.
//
// If several sources have an object of a key, the object of the first source is in force. When that source deletes it,
// the object of the next source takes its place. A change of another object changes nothing. If an equal object of
// another source takes its place, the old pointer stays and nothing changes. A key that several sources have is a
// finding.
//
// An object costs one map entry. An uncommitted change costs another, and a key that several sources have costs a list.
// The lock of the World guards all maps. Only the committing goroutine changes objects, and it may read objects without
// the lock.
type merged struct {
	objects map[kinds.Key]candidate   // in force, as of the last commit
	pending map[kinds.Key]candidate   // changes since; object is nil if it was deleted
	shared  map[kinds.Key][]candidate // all candidates of a key that several sources have, first source first
}

// candidate is an object and the source that has it.
type candidate struct {
	object *kinds.Object
	source int
}

func newMerged() merged {
	return merged{objects: map[kinds.Key]candidate{}, pending: map[kinds.Key]candidate{}, shared: map[kinds.Key][]candidate{}}
}

// latest returns the candidate in force for a key, including uncommitted changes.
func (m *merged) latest(k kinds.Key) candidate {
	if c, ok := m.pending[k]; ok {
		return c
	}
	return m.objects[k]
}

// load takes the pending objects as the first commit. n is the expected number of objects.
func (m *merged) load(n int) {
	m.objects = m.pending
	maps.DeleteFunc(m.objects, func(_ kinds.Key, c candidate) bool { return c.object == nil })
	if len(m.objects) == 0 {
		m.objects = make(map[kinds.Key]candidate, n)
	}
	m.pending = map[kinds.Key]candidate{}
}

// commit commits a change of the objects in force. A newer change may be pending.
func (m *merged) commit(c kinds.Change) {
	next := candidate{c.Object, m.objects[c.Key].source}
	if p, ok := m.pending[c.Key]; ok && p.object == c.Object {
		next = p
		delete(m.pending, c.Key)
	}
	if m.objects[c.Key] = next; c.Object == nil {
		delete(m.objects, c.Key)
	}
}

// merge applies the changes of a source and returns the changes of objects in force, in the same order. The result is a
// new slice, because the source may share its own with other callers.
func (w *World) merge(source int, changes []kinds.Change) []kinds.Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) < len(changes)/2 { // allocate once for the first load of a source
		pending := make(map[kinds.Key]candidate, len(w.pending)+len(changes))
		maps.Copy(pending, w.pending)
		w.pending = pending
	}
	out := make([]kinds.Change, 0, len(changes))
	for _, c := range changes {
		before := w.latest(c.Key)
		after := w.resolve(source, c, before)
		switch {
		case after == before || after.object == nil && before.object == nil:
			continue
		// A source reports only real changes. Between two sources only this comparison can tell.
		case after.object == before.object, after.object != nil && before.object != nil && after.source != before.source &&
			config.Equal(before.object, after.object):
			after.object = before.object
		default:
			out = append(out, kinds.Change{Key: c.Key, Object: after.object})
		}
		w.pending[c.Key] = after
	}
	return out
}

// resolve records the object that a source has for a key, and returns the candidate in force.
func (m *merged) resolve(source int, c kinds.Change, before candidate) candidate {
	list := m.shared[c.Key]
	if list == nil {
		if before.object == nil || before.source == source {
			return candidate{c.Object, source}
		}
		if c.Object == nil {
			return before
		}
		list = []candidate{before}
	}
	at, found := slices.BinarySearchFunc(list, source, func(c candidate, source int) int { return c.source - source })
	switch {
	case found && c.Object != nil:
		list[at].object = c.Object
	case found:
		list = slices.Delete(list, at, at+1)
	case c.Object != nil:
		list = slices.Insert(list, at, candidate{c.Object, source})
	}
	if len(list) > 1 {
		m.shared[c.Key] = list
	} else {
		delete(m.shared, c.Key)
	}
	if list[0].source == before.source && before.source != source {
		return before // the object in force is unchanged; its pointer may be an older, equal one
	}
	return list[0]
}

// loaded returns every object that sources have delivered before the first commit, in the order of changes.
func (w *World) loaded() []kinds.Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]kinds.Change, 0, len(w.pending))
	for key, c := range w.pending {
		if c.object != nil {
			out = append(out, kinds.Change{Key: key, Object: c.object})
		}
	}
	config.Sort(out)
	return out
}

// ofFirst returns the object in force for a key, including uncommitted changes, if one of the first n sources has it.
// It returns nil otherwise.
func (w *World) ofFirst(n int, k kinds.Key) *kinds.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.latest(k); c.source < n {
		return c.object
	}
	return nil
}

// duplicates returns a warning for each key that several of the named sources have, sorted by object. It ignores
// objects of the source except.
func (w *World) duplicates(sources []string, except string) []diag.Diagnostic {
	w.mu.Lock()
	defer w.mu.Unlock()
	where := func(c candidate) string {
		if c.object.Position != "" {
			return sources[c.source] + " (" + c.object.Position + ")"
		}
		return sources[c.source]
	}
	list := make([]diag.Diagnostic, 0, len(w.shared))
	for key, candidates := range w.shared {
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return sources[c.source] == except })
		if len(candidates) < 2 {
			continue
		}
		d := diag.Diagnostic{Severity: diag.Warning, Code: "DuplicateObject", Object: key.String(), Fix: "keep it in one of them"}
		var hidden []string
		for _, c := range candidates[1:] {
			hidden = append(hidden, where(c))
			if d.File == "" {
				d = d.At(c.object.Position)
			}
		}
		d.Message = fmt.Sprintf(
			"several sources have this object: the one from %s is in force, not the one from %s", where(candidates[0]),
			strings.Join(hidden, ", nor the one from "),
		)
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b diag.Diagnostic) int { return cmp.Compare(a.Object, b.Object) })
	return list
}
