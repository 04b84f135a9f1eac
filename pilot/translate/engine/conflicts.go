package engine

import (
	"maps"
	"slices"
)

// Conflict is a kind of conflict between objects, in which one does not get what it asks for. Its value is the name of
// its metric.
type Conflict string

// note is one conflict and its subject, such as a domain.
type note struct {
	Conflict
	about string
}

// Log collects the conflicts of a Set while it is generated. The nil Log collects nothing.
type Log struct {
	byPartition map[any][]note
	seen        map[any]map[note]struct{} // by partition; set once the partition has a new one
}

// Add records a conflict in a partition, once.
func (l *Log) Add(partition any, c Conflict, about string) {
	if l == nil {
		return
	}
	n := note{c, about}
	seen, ok := l.seen[partition]
	if !ok {
		if l.seen == nil {
			l.seen = map[any]map[note]struct{}{}
		}
		if l.byPartition == nil {
			l.byPartition = map[any][]note{}
		}
		seen = map[note]struct{}{}
		l.seen[partition] = seen
		l.byPartition[partition] = slices.Clip(l.byPartition[partition]) // another version may share the slice
		for _, had := range l.byPartition[partition] {
			seen[had] = struct{}{}
		}
	}
	if _, ok := seen[n]; !ok {
		seen[n] = struct{}{}
		l.byPartition[partition] = append(l.byPartition[partition], n)
	}
}

// Conflicts returns the subjects of the conflicts of one kind, sorted, in the Sets that were requested since the last
// full Snapshot.
func (c *Cache) Conflicts(kind Conflict) []string {
	c.mu.Lock()
	entries, last := slices.Collect(maps.Values(c.entries)), c.lastCompare
	c.mu.Unlock()
	about := map[string]struct{}{}
	for _, e := range entries {
		e.mu.Lock()
		if n := len(e.versions); n > 0 && e.versions[n-1].to >= last {
			for _, list := range e.versions[n-1].conflicts {
				for _, n := range list {
					if n.Conflict == kind {
						about[n.about] = struct{}{}
					}
				}
			}
		}
		e.mu.Unlock()
	}
	return slices.Sorted(maps.Keys(about))
}
