package view

import (
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
)

// Conflicts.
const (
	ConflictOutbound engine.Conflict = "pilot_conflict_outbound_listener_tcp_over_current_tcp" // two services have the same address and port
	// Two services have the same target port with different protocols.
	ConflictInbound engine.Conflict = "pilot_conflict_inbound_listener"
	DuplicateDomain engine.Conflict = "pilot_vservice_dup_domain" // two virtual hosts have the same domain
	DuplicateSubset engine.Conflict = "pilot_destrule_subsets"    // two rules define the same subset of a host
	// Two clusters have the same name, which cannot happen.
	DuplicateCluster engine.Conflict = "pilot_duplicate_envoy_clusters"
)

// Conflicts returns all kinds.
func Conflicts() []engine.Conflict {
	return []engine.Conflict{ConflictOutbound, ConflictInbound, DuplicateDomain, DuplicateSubset, DuplicateCluster}
}
