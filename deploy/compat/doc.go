// Package compat keeps MATRIX.md: which of Istio's tools were tried with this control plane, how, and with which
// result. Tests with the tag compat make its sections, with the tools themselves: `make compat`.
package compat
