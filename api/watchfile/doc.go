// Package watchfile tells its caller when to read files again: after events of the operating system, and periodically.
//
//   - watch.go: Watch, which a loop waits for.
//   - place.go: the directories that determine which file a path leads to.
//   - stamp.go: Stamp, which changes when a file changes.
//
// A Watch never says which file has changed. Its caller reads all files and compares. So a lost event only delays a
// change until the next poll, a network mount without events is polled, and a burst of events causes one read.
// Directories are watched instead of files, because a file may not exist yet, may be replaced by rename, or may lie
// behind links such as the ..data of a mounted ConfigMap; the directory of each link is watched too. Before Next
// returns, all directories that matter at that time are watched. A later change yields an event, and an earlier one is
// seen by the read that follows. The parents of a watched directory are not watched: the next poll sees that one was
// moved.
//
// With NoWatch a Watch only polls, and has no goroutine and almost no memory. Agents use it: the events of all pods of
// a node come from one small pool of the kernel, which belongs to the user that all agents run as.
//
// The goroutine that calls Next owns a Watch; only Wake may be called from others. While directories are watched, the
// Watch runs two goroutines, which end with Close: one of fsnotify, and one that receives its events, so that fsnotify
// never blocks.
//
// # Guarantees
//
//   - Every change of a file is seen, also when events are lost, and many events cause few reads: [TestFollow],
//     [TestSwapsAtRandomTimes], [TestManyEventsAreFewLooks].
package watchfile
