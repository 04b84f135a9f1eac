// Package compat keeps MATRIX.md: which of Istio's tools were tried with this control plane, how, and what became of
// it. Its sections are made by the tests behind the tag compat, `make compat`, with the tools themselves.
package compat
