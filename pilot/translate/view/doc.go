// Package view is the input of generators: one Snapshot, read through the look-ups of Reader, and what is derived from
// it for all of them. A View lives as long as its Snapshot. Safe for concurrent use.
package view
