// Package release holds how a release is made and verified: release.sh makes it with GoReleaser, whose settings are in
// goreleaser.yaml, notes.sh cuts its notes from the changelog, chart.sh packages a chart, sign.sh signs, and verify.sh
// checks all of it. docs/releases.md explains them. Package deploy/e2e/release makes whole releases.
//
// # Guarantees
//
//   - Release notes are the section of their version: [TestNotes].
//   - A packaged chart has its version, image and changes, and is the same each time: [TestCharts].
//   - A release has the programs, and is built, as `make build` builds them: [TestSettings].
//   - The modules that the programs link have licences of a list, [TestLicences], and others are found:
//     [TestOtherLicences]. docs/dependencies.md has the number of packages that they link: [TestLinked].
//   - A release has no version that is none, and no changes without a commit: [TestRefused].
package release
