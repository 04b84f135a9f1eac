package translate

import (
	"maps"
	"slices"
)

// Problem is something that a user's configuration asks for and does not get, by the name of the metric that counts it.
type Problem string

// Problems.
const (
	ConflictOutbound Problem = "pilot_conflict_outbound_listener_tcp_over_current_tcp" // two services want one place
	ConflictInbound  Problem = "pilot_conflict_inbound_listener"                       // two services want one target port in different protocols
	DuplicateDomain  Problem = "pilot_vservice_dup_domain"                             // two virtual hosts want one domain
	DuplicateSubset  Problem = "pilot_destrule_subsets"                                // two rules name one subset of a host
	DuplicateCluster Problem = "pilot_duplicate_envoy_clusters"                        // two clusters have one name: none have, by construction
)

// Problems lists all of them.
func Problems() []Problem {
	return []Problem{ConflictOutbound, ConflictInbound, DuplicateDomain, DuplicateSubset, DuplicateCluster}
}

// problem notes one, by what it is about.
func (v *view) problem(p Problem, about string) {
	if v.notes != nil {
		v.notes.add(note{p, about})
	}
}

// Count tells how many there are of one kind in what was asked for since the last change of more than endpoints.
func (t *Translator) Count(p Problem) int {
	about := map[string]struct{}{}
	for _, n := range t.problems() {
		if n.Problem == p {
			about[n.about] = struct{}{}
		}
	}
	return len(about)
}

// problems gives those of the Sets that were asked for since the last change.
func (t *Translator) problems() []note {
	t.kept.mu.Lock()
	sets, last := slices.Collect(maps.Values(t.kept.made)), t.kept.last
	t.kept.mu.Unlock()
	var all []note
	for _, s := range sets {
		s.mu.Lock()
		if n := len(s.versions); n > 0 && s.versions[n-1].to >= last {
			for _, list := range s.versions[n-1].notes {
				all = append(all, list...)
			}
		}
		s.mu.Unlock()
	}
	return all
}
