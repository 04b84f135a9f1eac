// Package release makes whole releases with the tools of a release, from clones of the commit that is checked out, and
// verifies them as a company does that adopts one.
//
// # Guarantees
//
//   - Two clones in two folders make the same bytes, by users with other settings and with an empty cache. Nothing is
//     written beside the cache and the folder bin of the clone: [TestSameBytes].
//   - verify.sh accepts a release. It rejects one with a changed byte in any of its files, or without one of them, and
//     names the file. It also rejects one with a file too many, and another key: [TestChangedByte].
//   - verify.sh rejects a release whose parts do not agree, even if it is signed: [TestDisagreement].
package release
