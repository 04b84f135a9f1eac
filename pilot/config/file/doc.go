// Package file is the source of configuration that reads a directory tree of YAML and JSON: every kind, several
// documents a file, and goes on reading it as it changes.
//
// What is read is never less safe than what was: a file that is torn, wrong or unreadable keeps its last good content,
// document by document, and a directory that vanishes or turns up empty keeps everything. The reasons are findings. In
// detail:
//
//   - Files whose names end in .yaml, .yml or .json, in any case, are read. Names that begin with a dot are not; links
//     that stay below the directory are followed, so the ..data links of mounted ConfigMaps work.
//   - A file replaced by rename, known by its inode, is read at once. One written in place is read when it has rested
//     for 100 ms, or for 500 ms if it looks unfinished: shorter than before, without a newline at its end, not to be
//     parsed, or with an object gone or in fewer lines. One that never rests is read after 2 s if it seems whole, after
//     10 s in any case. A new file is read at once unless it looks unfinished.
//   - A file that became empty keeps its content for 2 s, one that is gone for 100 ms, or up to 2 s while another file
//     is being written, in which its objects may turn up: writers empty, or remove, and write anew.
//   - Of two documents for one object the one in the file that is in force goes on to be; at the first load, or when
//     both come at once, the first path in byte order wins, and in one file the first document.
//   - An object whose content did not change keeps its pointer, and no Change is made of it, even if it moved within
//     its file or to another.
//   - An object with errors is in force without them, and restricts no less. If it has a last good version, that stays
//     in force unless the new one restricts more. See Document.InForce of galley/validation.
//   - An object that restricts something and is gone from all files stays in force while a part of the directory cannot
//     be read, where it may be now.
//   - The first load has no last good content. Run fails if a file or directory could not be looked at or read to its
//     end, if there is an error in a security object or in a ConfigMap that Options.Vital names, or if a document that
//     may hold an object that restricts something does not say which, or nothing of it can be in force. All findings
//     are known by then.
//
// It validates by galley/validation and knows nothing of what the objects mean. All state belongs to the goroutine that
// calls Run, from which the handlers are called too; the two getters may be called from anywhere. Beside it run the
// goroutines of api/watchfile.
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
