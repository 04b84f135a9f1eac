// Package status writes into the statuses of objects. Where PILOT_ENABLE_ANALYSIS is set, it writes what is wrong with
// objects, as istiod does: validationMessages, observedGeneration and the condition PassedAnalysis.
//
//   - status.go: what the status of an object should be.
//   - writer.go: the Writer, which writes it.
//   - derived.go: the DerivedWriter, which writes the statuses that stages derive, such as the addresses of Ingresses.
//
// A DerivedWriter compares what a status should be with what the object has, so that it overwrites what others write
// into the same fields, and writes nothing that is there already.
//
// Only objects with findings, and those that had some, are written. A Writer that begins lists the objects once, to
// know which have messages of a leader before it. It writes only what differs, a bounded number of objects a second,
// and each by the version that it has read: where somebody else writes too, it reads again. What others put into a
// status stays. Objects that do not count here, by their revision or their namespace, are not written. An object that
// is not as it was analysed is written after the next analysis. While findings are left out because there are too many,
// no status comes to say that nothing is wrong.
//
// The findings are looked at after each analysis, and every 10 seconds: no analysis follows a new object that cannot be
// used. What is refused is not tried again before the findings of that object change. After other failures everything
// is tried again, after pauses that grow.
//
// No write here starts a push: of statuses, sources read only the addresses of Ingresses, which no translation reads.
//
// Whoever makes a writer sees to it that only a leader runs it, and guards its client. Wake may be called from any
// goroutine. Run is called by one at a time, and starts none.
package status
