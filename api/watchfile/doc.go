// Package watchfile tells its caller when to look at files again: after events of the operating system, and after a
// while in any case.
//
//   - watch.go: Watch, on which a loop waits.
//   - place.go: which directories decide what a path leads to.
//   - stamp.go: Stamp, which differs if a file does.
//
// A Watch never says what has changed. Its caller looks at all files, and compares. So an event that is lost costs a
// poll and no change, a network mount without events is polled, and many events at once cost one look. Directories are
// watched, never files: a file may not exist yet, be replaced by rename, or lie behind links such as the ..data of a
// mounted ConfigMap, each of which is watched in its own directory. Before Next returns, the directories that decide
// now are watched. What changes after that yields an event, and what changed before is seen by the look that follows.
//
// With NoWatch a Watch polls only and has no goroutine and no memory to speak of. An agent does so: the events of all
// pods of a node come from one small pool of the kernel, which belongs to the user that all agents run as.
//
// A Watch is owned by the goroutine that calls Next, except Wake. While directories are watched it runs two goroutines,
// which end by Close: one of fsnotify, and one that takes its events, so that fsnotify never blocks.
//
// # Guarantees
//
//   - Every change of a file is seen, also when events are lost, and many events cause few reads: [TestFollow],
//     [TestSwapsAtRandomTimes], [TestManyEventsAreFewLooks].
package watchfile
