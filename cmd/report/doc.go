// Package report writes findings in the formats that people, editors and CI systems read: lines, a table, JSON, YAML,
// SARIF 2.1.0 and the annotations of GitHub's workflows.
//
//   - report.go: the Report, its thresholds, JSON and YAML.
//   - text.go: lines and the table.
//   - sarif.go: SARIF, as the schema of OASIS has it.
//   - github.go: workflow commands, escaped as GitHub documents.
//
// It keeps no state and runs no goroutine. The same findings give the same bytes.
//
// # Guarantees
//
//   - SARIF has what its schema requires, and annotations are escaped as GitHub documents: [TestSARIF], [TestGitHub].
package report
