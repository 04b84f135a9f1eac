// Package world parses YAML into changes, for the tests of the registries. Production code must not use it: it reports
// no positions, and fails the test at the first error.
package world
