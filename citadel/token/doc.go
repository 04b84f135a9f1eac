// Package token makes tokens of service accounts where there is no Kubernetes to make them. The key is a file in the
// server's state folder, so whoever may read that folder can make tokens, and nobody else.
//
// # Guarantees
//
//   - Only a key in the state folder makes tokens that are accepted: [TestToken], [TestKeysMadeTogether]. A state
//     folder or key that another user may have read or replaced is refused before anything is written there:
//     [TestOpenFolderStaysEmpty].
package token
