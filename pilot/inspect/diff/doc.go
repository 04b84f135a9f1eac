// Package diff compares what the proxies of a mesh are sent at two Snapshots: which proxies, which resources of
// theirs are added, changed and removed, in which fields, and which changed objects are why.
//
// It is a pure function of the Snapshots, the proxies and a Translator. A Comparer keeps what it read of resources, and
// is used by one goroutine. Proxies of one cohort are looked at once, and Sets that stayed the same pointers are not
// looked at at all, so that a comparison costs what differs.
package diff
