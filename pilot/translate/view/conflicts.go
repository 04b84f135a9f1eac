package view

import (
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
)

// Conflicts.
const (
	ConflictOutbound engine.Conflict = "pilot_conflict_outbound_listener_tcp_over_current_tcp" // two services want one address and port
	ConflictInbound  engine.Conflict = "pilot_conflict_inbound_listener"                       // two services want one target port in different protocols
	DuplicateDomain  engine.Conflict = "pilot_vservice_dup_domain"                             // two virtual hosts want one domain
	DuplicateSubset  engine.Conflict = "pilot_destrule_subsets"                                // two rules name one subset of a host
	DuplicateCluster engine.Conflict = "pilot_duplicate_envoy_clusters"                        // two clusters have one name; this cannot happen, by construction
)

// Conflicts returns all kinds.
func Conflicts() []engine.Conflict {
	return []engine.Conflict{ConflictOutbound, ConflictInbound, DuplicateDomain, DuplicateSubset, DuplicateCluster}
}
