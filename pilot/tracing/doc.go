// Package tracing makes one OpenTelemetry trace of each push, from the first change to the last acknowledgement, with
// its causes, its stages, what was sent and what proxies rejected.
//
// It reads the log of pushes afterwards, so that a push itself costs nothing more. A push that proxies have not
// answered is traced in its state when Options.Patience is over. The caller's Tracer decides where spans go. The
// package starts no goroutine: the caller of Run does all of its work.
//
// # Guarantees
//
//   - A push is traced once its proxies have answered, with its stages inside: [TestPushesAreTraced].
package tracing
