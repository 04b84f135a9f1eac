package aggregate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Source is one source made of several. Its getters may be called from anywhere. The sink must not call Add, nor the
// handlers that From returns.
type Source struct {
	sink  config.Handler
	turn  sync.Mutex    // held from a call of a source to the return of the sink: one at a time, in order
	whole chan struct{} // closed when the sink has returned from its first call

	mu      sync.Mutex // guards what follows, for the getters
	sources []source
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

// New makes a Source, to which sources are added. The first call of sink brings all that they have.
func New(sink config.Handler) *Source {
	return &Source{sink: sink, whole: make(chan struct{}), objects: map[kinds.Key]candidate{}, shared: map[kinds.Key][]candidate{}}
}

// Add puts another source behind all that are there and returns its index. Before the first call of the sink it is
// awaited like the others, later not: what it brings first are changes like any.
func (s *Source) Add(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources = append(s.sources, source{name: name, awaited: !s.started})
	return len(s.sources) - 1
}

// From returns the handler of a source.
func (s *Source) From(i int) config.Handler {
	return func(changes []kinds.Change) {
		s.turn.Lock()
		defer s.turn.Unlock()
		changes, first := s.take(i, changes)
		if len(changes) > 0 || first {
			s.sink(changes)
		}
		if first {
			close(s.whole)
		}
	}
}

// take applies the changes of source i, and returns the changes with which the sink is to be called. As long as a
// source is awaited there are none. Then they are all objects, and first is true.
func (s *Source) take(i int, changes []kinds.Change) (out []kinds.Change, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources[i].awaited = false
	out = s.apply(i, changes)
	if !s.started {
		if slices.ContainsFunc(s.sources, func(s source) bool { return s.awaited }) {
			return nil, false
		}
		s.started, first = true, true
		out = make([]kinds.Change, 0, len(s.objects))
		for key, c := range s.objects {
			out = append(out, kinds.Change{Key: key, Object: c.object})
		}
		config.Sort(out)
	}
	return out, first
}

// apply returns what changes in what counts, in the order of changes. The slice is new, for the source may have given
// its own to others too.
func (s *Source) apply(i int, changes []kinds.Change) []kinds.Change {
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
func (s *Source) resolve(i int, c kinds.Change, before candidate, had bool) candidate {
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

// Awaited names the sources whose first call is awaited, in order of precedence.
func (s *Source) Awaited() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, source := range s.sources {
		if source.awaited {
			names = append(names, source.name)
		}
	}
	return names
}

// HasSynced reports whether the sink has got, and handled, what every source had that is awaited.
func (s *Source) HasSynced() bool {
	select {
	case <-s.whole:
		return true
	default:
		return false
	}
}

// Wait blocks until HasSynced, or until ctx ends: then the error names the sources that are awaited.
func (s *Source) Wait(ctx context.Context) error {
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
