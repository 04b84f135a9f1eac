// Package patches describes patches of EnvoyFilters. Validation, analysis and the code that applies patches share it.
package patches
