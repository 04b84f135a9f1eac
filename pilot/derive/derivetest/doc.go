// Package derivetest runs a stage for tests as pilot/ingest does: with what has changed since its last run.
package derivetest
