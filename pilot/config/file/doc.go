// Package file is the source of configuration that reads a directory tree of YAML and JSON: every kind, several documents a file, and goes on
// reading it as it changes.
//
// What is read is never less safe than what was: a file that is torn, wrong or unreadable keeps its last good content, document by document, and a
// directory that vanishes or turns up empty keeps everything. The reasons are findings. In detail:
//
//   - Names that begin with a dot are not read; links that stay below the directory are followed, so the ..data links of mounted ConfigMaps work.
//   - A file written in place that looks unfinished (shorter than before, or without a newline at its end) is read when it has rested for
//     500 ms; one replaced by rename is read at once. A file that became empty keeps its content for 2 s, one that is gone for 100 ms: writers empty,
//     or remove, and write anew.
//   - Of two documents for one object the first path in byte order wins, and in one file the first document.
//   - An object whose content did not change keeps its pointer, and no Change is made of it, even if it moved within its file or to another.
//   - On the first load an object that cannot be used is left out, but Run fails where that would open what a security object closes.
//
// It validates by galley/validation and knows nothing of what the objects mean. All state belongs to the goroutine that calls Run, from which the
// handlers are called too; the two getters may be called from anywhere. Besides, fsnotify runs one goroutine while Run does.
package file
