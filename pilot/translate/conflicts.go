package translate

import (
	"maps"
	"slices"
)

// Conflict is something that a user's configuration asks for and does not get, by the name of the metric that counts it.
type Conflict string

// Problems.
const (
	ConflictOutbound Conflict = "pilot_conflict_outbound_listener_tcp_over_current_tcp" // two services want one place
	ConflictInbound  Conflict = "pilot_conflict_inbound_listener"                       // two services want one target port in different protocols
	DuplicateDomain  Conflict = "pilot_vservice_dup_domain"                             // two virtual hosts want one domain
	DuplicateSubset  Conflict = "pilot_destrule_subsets"                                // two rules name one subset of a host
	DuplicateCluster Conflict = "pilot_duplicate_envoy_clusters"                        // two clusters have one name: none have, by construction
)

// Conflicts lists all of them.
func Conflicts() []Conflict {
	return []Conflict{ConflictOutbound, ConflictInbound, DuplicateDomain, DuplicateSubset, DuplicateCluster}
}

// recordConflict notes one, by what it is about.
func (v *view) recordConflict(p Conflict, about string) {
	if v.conflicts != nil {
		v.conflicts.add(conflictNote{p, about})
	}
}

// Count tells how many there are of one kind in what was asked for since the last change of more than endpoints.
func (t *Translator) Count(p Conflict) int {
	about := map[string]struct{}{}
	for _, n := range t.currentConflicts() {
		if n.Conflict == p {
			about[n.about] = struct{}{}
		}
	}
	return len(about)
}

// currentConflicts gives those of the Sets that were asked for since the last change.
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
