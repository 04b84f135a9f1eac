package ingest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// merger makes one source of several, in order of precedence.
//
// Of several objects with one key, the object of the first source counts. When that source deletes it, the object of
// the next source takes its place. A change of an object that does not count changes nothing. When the object that
// counts is replaced by an equal one of another source, the old pointer stays and nothing changes. A key that several
// sources have is a finding.
//
// The sink is first called when every source has made its first call, and gets all objects. So nothing is served from
// half of the sources. The sink is called from the goroutines of the sources, one at a time, while the other sources
// wait. A key costs one map entry with a pointer, and a list only if several sources have it.
//
// Its getters may be called from anywhere. The sink must not call add, nor the handlers of sources.
type merger struct {
	sink  config.Handler
	turn  sync.Mutex    // held from a call of a source to the return of the sink: one at a time, in order
	whole chan struct{} // closed when the sink has returned from its first call

	mu      sync.Mutex // guards what follows, for the getters
	sources []source
	first   int // how many of the sources, those in front, are awaited before the others

	// heard is called once, after the sources in front have made their first calls and usable agrees. It is nil
	// afterwards, or if there is nothing to call.
	heard func()

	// usable reports whether the sink may be called for the first time with what the sources in front have. It is called
	// again after each of their changes. It is nil if the sink may be called with anything.
	usable func() bool

	objects map[kinds.Key]candidate   // what counts
	shared  map[kinds.Key][]candidate // of keys that several sources have: all of them, the one that counts first
	started bool                      // the sink was called, or is being called, for the first time
}

type source struct {
	name    string
	awaited bool // its first call is
}

// candidate is an object and the source that has it.
type candidate struct {
	object *kinds.Object
	source int
}

// newMerger returns a merger to which sources are added. The first call of sink brings all that they have.
func newMerger(sink config.Handler) *merger {
	return &merger{sink: sink, whole: make(chan struct{}), objects: map[kinds.Key]candidate{}, shared: map[kinds.Key][]candidate{}}
}

// add puts another source behind all that are there and returns its handler. Before the first call of the sink the
// source is awaited like the others, later not: what it brings first are changes like any.
func (s *merger) add(name string) config.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.sources)
	s.sources = append(s.sources, source{name: name, awaited: !s.started})
	return func(changes []kinds.Change) { s.take(i, changes) }
}

// whenHeard has fn called once, when every source that is there by now has made its first call. fn may add sources.
func (s *merger) whenHeard(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.heard = len(s.sources), fn
}

// take applies the changes of source i and calls the sink with what changes in what counts. As long as a source is
// awaited it does not. Its first call brings all objects.
func (s *merger) take(i int, changes []kinds.Change) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	s.sources[i].awaited = false
	started, changes := s.started, s.apply(i, changes)
	complete := !slices.ContainsFunc(s.sources[:s.first], isAwaited)
	s.mu.Unlock()
	switch {
	case started && len(changes) > 0:
		s.sink(changes)
	case started, !complete, s.usable != nil && !s.usable():
	case s.start():
		s.sink(s.all())
		close(s.whole)
	}
}

func isAwaited(s source) bool { return s.awaited }

// start calls what whenHeard has named, and notes that the sink is called from now on. It returns false if a source is
// awaited.
func (s *merger) start() bool {
	s.mu.Lock()
	heard := s.heard
	s.heard = nil
	s.mu.Unlock()
	if heard != nil {
		heard()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = !slices.ContainsFunc(s.sources, isAwaited)
	return s.started
}

// all returns every object that counts, in the order of changes.
func (s *merger) all() []kinds.Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]kinds.Change, 0, len(s.objects))
	for key, c := range s.objects {
		out = append(out, kinds.Change{Key: key, Object: c.object})
	}
	config.Sort(out)
	return out
}

// ofFirst returns the object of a key that counts, if one of those sources has it that whenHeard awaits; else nil.
func (s *merger) ofFirst(k kinds.Key) *kinds.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.objects[k]; c.source < s.first {
		return c.object
	}
	return nil
}

// apply returns what changes in what counts, in the order of changes. The slice is new, for the source may have given
// its own to others too. The caller holds mu.
func (s *merger) apply(i int, changes []kinds.Change) []kinds.Change {
	if len(s.objects) < len(changes)/2 { // a source's first load: room at once, in place of twice as much again and again
		objects := make(map[kinds.Key]candidate, len(s.objects)+len(changes))
		maps.Copy(objects, s.objects)
		s.objects = objects
	}
	var out []kinds.Change
	if s.started {
		out = make([]kinds.Change, 0, len(changes))
	}
	for _, c := range changes {
		before, had := s.objects[c.Key]
		after := s.resolve(i, c, before, had)
		if after.object == before.object {
			if had {
				s.objects[c.Key] = after
			}
			continue
		}
		// Within one source, changes are real: it compares. Between two only this can.
		if had && after.object != nil && after.source != before.source && config.Equal(before.object, after.object) {
			s.objects[c.Key] = candidate{before.object, after.source}
			continue
		}
		if after.object == nil {
			delete(s.objects, c.Key)
		} else {
			s.objects[c.Key] = after
		}
		if s.started {
			out = append(out, kinds.Change{Key: c.Key, Object: after.object})
		}
	}
	return out
}

// resolve notes what source i has for a key and returns what counts then; no object if nobody has it.
func (s *merger) resolve(i int, c kinds.Change, before candidate, had bool) candidate {
	list := s.shared[c.Key]
	if list == nil {
		if !had || before.source == i {
			return candidate{c.Object, i}
		}
		if c.Object == nil {
			return before
		}
		list = []candidate{before}
	}
	at, found := slices.BinarySearchFunc(list, i, func(c candidate, i int) int { return c.source - i })
	switch {
	case found && c.Object != nil:
		list[at].object = c.Object
	case found:
		list = slices.Delete(list, at, at+1)
	case c.Object != nil:
		list = slices.Insert(list, at, candidate{c.Object, i})
	}
	if len(list) > 1 {
		s.shared[c.Key] = list
	} else {
		delete(s.shared, c.Key)
	}
	if list[0].source == before.source && before.source != i {
		return before // nothing happened to what counts, whose pointer may be an older equal one
	}
	return list[0]
}

// Awaited names the sources whose first call is awaited, in order of precedence: those of whenHeard before others.
func (s *merger) Awaited() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for i, source := range s.sources {
		if i == s.first && len(names) > 0 {
			break
		}
		if source.awaited {
			names = append(names, source.name)
		}
	}
	return names
}

// HasSynced reports whether the sink has got, and handled, what every source had that is awaited.
func (s *merger) HasSynced() bool {
	select {
	case <-s.whole:
		return true
	default:
		return false
	}
}

// Wait blocks until HasSynced, or until ctx ends: then the error names the sources that are awaited.
func (s *merger) Wait(ctx context.Context) error {
	select {
	case <-s.whole:
		return nil
	case <-ctx.Done():
		if s.HasSynced() {
			return nil
		}
		return fmt.Errorf("wait for sources to sync (%s): %w", strings.Join(s.Awaited(), ", "), ctx.Err())
	}
}

// duplicates returns one warning for each key that several sources have, in the order of objects. What the source
// except has besides is none.
func (s *merger) duplicates(except string) []diag.Diagnostic {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]diag.Diagnostic, 0, len(s.shared))
	for key, candidates := range s.shared {
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return s.sources[c.source].name == except })
		if len(candidates) < 2 {
			continue
		}
		d := diag.Diagnostic{Severity: diag.Warning, Code: "DuplicateObject", Object: key.String(), Fix: "keep it in one of them"}
		var hidden []string
		for _, c := range candidates[1:] {
			hidden = append(hidden, s.where(c))
			if d.File == "" {
				d = d.At(c.object.Position)
			}
		}
		d.Message = fmt.Sprintf("several sources have this object: that of %s counts, not that of %s", s.where(candidates[0]), strings.Join(hidden, ", nor that of "))
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b diag.Diagnostic) int { return cmp.Compare(a.Object, b.Object) })
	return list
}

func (s *merger) where(c candidate) string {
	name := s.sources[c.source].name
	if c.object.Position != "" {
		name += " (" + c.object.Position + ")"
	}
	return name
}
