// Package file is the source of configuration from a directory tree of YAML and JSON. It reads every kind, several
// documents per file, and follows changes.
//
// Failures never weaken security: a torn, faulty or unreadable file keeps its last good content, document by document,
// and a directory that disappears or becomes empty keeps all objects. The reasons are findings. In detail:
//
//   - Files whose names end in .yaml, .yml or .json, in any case, are read. Names that begin with a dot are not. Links
//     that stay below the directory are followed, so the ..data links of mounted ConfigMaps work.
//   - A file that is replaced by rename, which its inode shows, is read at once. A file written in place is read when
//     it has been unchanged for 100 ms, or for 500 ms if it looks unfinished: shorter than before, without a final
//     newline, not parsable, or with an object gone or shorter. A file that keeps changing is read after 2 s if it
//     seems complete, after 10 s in any case. A new file is read at once unless it looks unfinished.
//   - A file that became empty keeps its content for 2 s, and a removed file for 100 ms, or up to 2 s while another
//     file is being written, because its objects may appear there.
//   - If several documents define one object, the one in the file that is in force stays in force. At the first load,
//     or if they appear together, the first path in byte order takes precedence, and in one file the first document.
//   - An object whose content did not change keeps its pointer and causes no change, even if it moved within its file
//     or to another.
//   - An object with errors is in force without the faulty fields, and restricts no less. If it has a last good
//     version, that stays in force unless the new one restricts more. See Document.InForce of galley/validation.
//   - An object that restricts something and is gone from all files stays in force while a part of the directory is
//     unreadable, because it may be there now.
//   - The first load has no last good content. Run fails if a file or directory is unreadable, if there is an error in
//     a security object or in a ConfigMap that Options.Vital selects, or if a document that may hold an object that
//     restricts something does not name it, or has no usable part. All findings are published by then.
//
// It validates with galley/validation and does not interpret objects. The goroutine of Run owns all state and calls the
// handlers; the two getters are safe for concurrent use. Also the goroutines of api/watchfile run.
//
// # Guarantees
//
//   - A torn, broken or vanished file keeps its last good content: [TestTornFile], [TestTornFileThatGrows],
//     [TestBreakAndMend], [TestDirectoryVanishesOrEmpties].
//   - A directory with an unusable security object, with two different versions of one, or with a file or directory
//     that cannot be read, keeps the server from starting: [TestFirstLoadRefusesBrokenSecurity],
//     [TestFirstLoadRefusesWhatItCannotRead], [TestFirstLoadPassesOver], [pilot/bootstrap.TestRefusesToStart].
//   - An object that is gone from all files stays in force while it may be in a file that cannot be read:
//     [TestMovedIntoBrokenFile].
package file
