package translate

import (
	"maps"
	"slices"
)

// Conflict is a kind of conflict between objects, in which one does not get what it asks for. Its value is the name of
// the metric that counts it.
type Conflict string

// Conflicts.
const (
	ConflictOutbound Conflict = "pilot_conflict_outbound_listener_tcp_over_current_tcp" // two services want one address and port
	ConflictInbound  Conflict = "pilot_conflict_inbound_listener"                       // two services want one target port in different protocols
	DuplicateDomain  Conflict = "pilot_vservice_dup_domain"                             // two virtual hosts want one domain
	DuplicateSubset  Conflict = "pilot_destrule_subsets"                                // two rules name one subset of a host
	DuplicateCluster Conflict = "pilot_duplicate_envoy_clusters"                        // two clusters have one name; this cannot happen, by construction
)

// Conflicts returns all kinds.
func Conflicts() []Conflict {
	return []Conflict{ConflictOutbound, ConflictInbound, DuplicateDomain, DuplicateSubset, DuplicateCluster}
}

// recordConflict records a conflict about something, such as a domain.
func (v *view) recordConflict(p Conflict, about string) {
	if v.conflicts != nil {
		v.conflicts.add(conflictNote{p, about})
	}
}

// Count returns how many conflicts of one kind there are in the Sets that were asked for since the last full Snapshot.
func (t *Translator) Count(p Conflict) int {
	about := map[string]struct{}{}
	for _, n := range t.currentConflicts() {
		if n.Conflict == p {
			about[n.about] = struct{}{}
		}
	}
	return len(about)
}

// currentConflicts returns the conflicts in the Sets that were asked for since the last full Snapshot.
func (t *Translator) currentConflicts() []conflictNote {
	t.sets.mu.Lock()
	sets, last := slices.Collect(maps.Values(t.sets.entries)), t.sets.lastFull
	t.sets.mu.Unlock()
	var all []conflictNote
	for _, s := range sets {
		s.mu.Lock()
		if n := len(s.versions); n > 0 && s.versions[n-1].to >= last {
			for _, list := range s.versions[n-1].conflicts {
				all = append(all, list...)
			}
		}
		s.mu.Unlock()
	}
	return all
}

// conflictNote is one conflict and what it is about.
type conflictNote struct {
	Conflict
	about string
}

// conflictLog collects the conflicts of a Set while it is generated.
type conflictLog struct {
	partition   any // the one that is generated now
	byPartition map[any][]conflictNote
	seen        map[any]map[conflictNote]struct{} // by partition, once it has a new one
}

// add records a conflict of the current partition, once.
func (l *conflictLog) add(n conflictNote) {
	seen, ok := l.seen[l.partition]
	if !ok {
		if seen = map[conflictNote]struct{}{}; l.seen == nil {
			l.seen = map[any]map[conflictNote]struct{}{}
		}
		l.seen[l.partition] = seen
		l.byPartition[l.partition] = slices.Clip(l.byPartition[l.partition]) // another version may share the slice
		for _, had := range l.byPartition[l.partition] {
			seen[had] = struct{}{}
		}
	}
	if _, ok := seen[n]; !ok {
		seen[n] = struct{}{}
		l.byPartition[l.partition] = append(l.byPartition[l.partition], n)
	}
}
