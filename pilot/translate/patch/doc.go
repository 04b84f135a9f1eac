// Package patch changes resources after all features have made them: it calls the hook Patches of the one feature that
// has it. Patches are a part of a cohort's key of their own. Proxies without them are sent what they would be sent if
// nobody had any, and their Sets are the ones that patched Sets are derived from.
//
//   - patch.go: the Sets of each type.
//   - routes.go: route configurations, whose virtual hosts are patched by themselves.
//   - findings.go: what is known of the patches of the Sets that are in use. Each resource that a patch was applied to,
//     or should have been, has notes about that.
//
// A resource that no patch applies to is the same pointer in both Sets. One that is patched is stored in the memo by
// the resource that it was and by the patches that may apply to it, so that it is shared between cohorts, and stays
// when another object changes.
package patch
