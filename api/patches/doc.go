// Package patches says what patches of EnvoyFilters do: for validation and analysis, and for what applies them.
package patches
