// Package release makes whole releases with the tools of a release, from clones of the commit that is checked out, and
// verifies them as a company does that adopts one.
//
// # Guarantees
//
//   - Two clones in two folders make the same bytes, by users with other settings and with an empty cache:
//     [TestSameBytes].
//   - verify.sh accepts a release, and rejects it with one changed byte in any of its files, with a file too many or
//     too few, and with another key: [TestChangedByte].
//   - verify.sh rejects a release whose parts do not agree, even if it is signed: [TestDisagreement].
package release
