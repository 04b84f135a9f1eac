// Package token issues tokens of service accounts without Kubernetes. The key is a file in the server's state folder,
// so only processes that can read that folder can issue tokens.
//
// # Guarantees
//
//   - Only a key in the state folder makes tokens that are accepted: [TestToken], [TestKeysMadeTogether]. A state
//     folder or key that another user may have read or replaced is refused before anything is written there:
//     [TestOpenFolderStaysEmpty].
package token
