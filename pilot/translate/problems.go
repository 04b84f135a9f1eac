package translate

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
	v.sets.mu.Lock()
	defer v.sets.mu.Unlock()
	if v.sets.problems == nil {
		v.sets.problems = map[Problem]map[string]struct{}{}
	}
	if v.sets.problems[p] == nil {
		v.sets.problems[p] = map[string]struct{}{}
	}
	v.sets.problems[p][about] = struct{}{}
}

// Count tells how many there are of one kind in what was worked out since the last change of more than endpoints.
func (t *Translator) Count(p Problem) int {
	t.mu.Lock()
	v := t.newest
	t.mu.Unlock()
	if v == nil {
		return 0
	}
	v.sets.mu.Lock()
	defer v.sets.mu.Unlock()
	return len(v.sets.problems[p])
}
