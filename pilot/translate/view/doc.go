// Package view is what generators read: one Snapshot, through the look-ups that Reader lists, and what is derived from
// it for all of them. A View lives as long as its Snapshot. Safe for concurrent use.
package view
