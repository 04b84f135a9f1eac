// Package patch changes resources after all features have made them: it calls the hook Patches of the one feature that
// has it. Patches are a part of a cohort's key of their own. Proxies without patches are sent the same as in a mesh
// without any, and patched Sets are derived from these Sets.
//
//   - patch.go: the Sets of each type.
//   - routes.go: route configurations, whose virtual hosts are patched separately.
//   - findings.go: findings about the patches of the Sets in use. Each resource to which a patch was applied, or could
//     not be applied, has notes about it.
//
// A resource without a matching patch is the same pointer in both Sets. A patched resource is stored in the memo by the
// original resource and the patches that may apply to it. So cohorts share it, and it stays when another object
// changes.
package patch
