// Package compat keeps MATRIX.md: which tools were tried with this control plane, how, and with which result. Tests
// with the tag compat make the sections of Istio's tools, with the tools themselves: `make compat`. The packages of
// deploy/e2e/integrations make one row each: `make integrations`.
//
// # Guarantees
//
//   - A row never changes others: [TestReplaceRow]. Tests that cannot reach MATRIX.md leave their rows in a file, and
//     all of these are checked: [TestRowsOfAFile].
package compat
