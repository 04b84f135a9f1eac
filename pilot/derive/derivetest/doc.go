// Package derivetest runs a stage in tests as pilot/ingest does: with the changes since its last run.
package derivetest
