package crd

import (
	"cmp"
	"context"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// wantedIn is a kind and namespace with wanted objects.
type wantedIn struct {
	kind      *kinds.Kind
	namespace string
}

// wantedFeeds read the wanted objects of one kind in one namespace: one feed for each, or if there are many, one feed
// for the whole namespace.
type wantedFeeds struct {
	whole  *feed // nil if few objects are wanted
	single map[string]*feed
}

// Want replaces the single objects, of core kinds, that are read in addition to Options.Kinds. If many of a namespace
// are wanted (Limits.WatchedNames), all objects of the kind there are read. Objects that are no longer read are
// deleted. Want does not wait.
func (s *Source) Want(objects []kinds.Key) {
	wanted := map[wantedIn]map[string]struct{}{}
	for _, o := range objects {
		at := wantedIn{o.Kind, o.Namespace}
		lists.PutIn(wanted, at, o.Name, struct{}{})
	}
	s.mu.Lock()
	s.wanted = wanted
	s.mu.Unlock()
	s.wake()
}

// Wants reports whether an object is wanted.
func (s *Source) Wants(k kinds.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, wanted := s.wanted[wantedIn{k.Kind, k.Namespace}][k.Name]
	return wanted
}

// allFeeds calls yield for each feed. The caller holds s.mu.
func (s *Source) allFeeds(yield func(*feed) bool) {
	for _, f := range s.feeds {
		if !yield(f) {
			return
		}
	}
	for _, r := range s.reading {
		if r.whole != nil && !yield(r.whole) {
			return
		}
		for _, f := range r.single {
			if !yield(f) {
				return
			}
		}
	}
}

// reads returns the feed that reads an object, or nil.
func (r *wantedFeeds) reads(n name) *feed { return cmp.Or(r.whole, r.single[n.name]) }

// ending is a feed to stop. Other feeds may go on to read its objects: see feed.end.
type ending struct {
	*feed
	others *wantedFeeds
}

// followWanted starts and stops feeds of wanted objects. Run calls it.
func (s *Source) followWanted(ctx context.Context) {
	s.mu.Lock()
	var start []*feed
	var stop []ending
	for at, names := range s.wanted {
		r := s.reading[at]
		if r == nil {
			r = &wantedFeeds{single: map[string]*feed{}}
			s.reading[at] = r
		}
		more, less := s.adjust(at, r, names)
		start, stop = append(start, more...), append(stop, less...)
	}
	for at, r := range s.reading {
		if s.wanted[at] == nil {
			_, less := s.adjust(at, r, nil)
			stop = append(stop, less...)
			delete(s.reading, at)
		}
	}
	s.mu.Unlock()
	for _, f := range stop {
		f.cancel()
	}
	for _, f := range stop {
		f.end(f.others.reads)
		s.metrics.count(f.plural, -1, 0)
	}
	for _, f := range start {
		s.metrics.count(f.plural, 1, 0)
		f.start(ctx)
	}
}

// adjust changes the feeds of a kind in a namespace to the wanted names, and returns the feeds to start and to stop. It
// returns to single feeds only below half the limit, so that a name that comes and goes does not cost a list of the
// namespace each time. The caller holds s.mu.
func (s *Source) adjust(at wantedIn, r *wantedFeeds, names map[string]struct{}) (start []*feed, stop []ending) {
	limit, was := s.opts.Limits.WatchedNames, r.whole
	if was != nil {
		limit /= 2
	}
	if len(names) > limit {
		if was != nil {
			return nil, nil
		}
		whole := s.newWanted(at, nil)
		for _, f := range r.single {
			stop = append(stop, ending{f, r})
		}
		r.whole, r.single = whole, map[string]*feed{}
		return []*feed{whole}, stop
	}
	if was != nil {
		r.whole = nil
		stop = append(stop, ending{was, r})
	}
	for name := range names {
		if r.single[name] == nil {
			f := s.newWanted(at, []string{name})
			r.single[name] = f
			start = append(start, f)
		}
	}
	for name, f := range r.single {
		if _, ok := names[name]; !ok {
			delete(r.single, name)
			stop = append(stop, ending{f, r})
		}
	}
	return start, stop
}

func (s *Source) newWanted(at wantedIn, names []string) *feed {
	f := newFeed(s, at.kind, Restriction{Namespace: at.namespace, Names: names})
	f.present = map[name]struct{}{}
	return f
}

// Missing returns the wanted objects that the API server does not have, in no order.
func (s *Source) Missing() []kinds.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []kinds.Key
	for at, r := range s.reading {
		for n := range s.wanted[at] {
			f := r.reads(name{at.namespace, n})
			if f == nil || !f.synced || f.readError != nil {
				continue
			}
			if _, ok := f.present[name{at.namespace, n}]; !ok {
				list = append(list, kinds.Key{Kind: at.kind, Namespace: at.namespace, Name: n, Cluster: s.opts.Cluster})
			}
		}
	}
	return list
}
