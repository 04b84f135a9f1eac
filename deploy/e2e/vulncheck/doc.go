// Package vulncheck tests how `make vulncheck` looks for known vulnerabilities in what the programs link: by
// govulncheck, with a small database in the format of the Go project's own.
//
// # Guarantees
//
//   - A vulnerability of a function that a program calls fails the check, and is named. One of a function that no
//     program calls, or of a module that no program links, does not. The check also fails if the folder of the
//     database has no vulnerabilities: [TestVulncheck].
package vulncheck
