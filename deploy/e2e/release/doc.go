// Package release makes whole releases with the tools of a release, from clones of the commit that is checked out, and
// verifies them as a company does that adopts one.
//
// # Guarantees
//
//   - Two clones in two folders make the same bytes, with the settings of different users and with an empty cache. A
//     release writes only to the cache and to the folder bin of the clone: [TestSameBytes].
//   - verify.sh accepts a release. If a byte of any file is changed, or a file is missing, it rejects the release and
//     names the file. It also rejects a release with an additional file, and another key: [TestChangedByte].
//   - verify.sh rejects a release whose parts do not agree, even if it is signed: [TestDisagreement].
package release
