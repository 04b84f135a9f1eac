// Package charts has the schemas of the values of the charts in this folder, by which commands judge values files.
//
// - charts.go: the schemas.
//
// The package is pure and has no state.
package charts
