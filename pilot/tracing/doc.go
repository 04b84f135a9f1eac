// Package tracing makes OpenTelemetry traces of pushes: one trace of each, from the first change coming in to the last
// acknowledgement, with its causes, its stages, what was sent and what proxies rejected.
//
// It reads the log of pushes after the fact, so that a push costs nothing more while it is made. A push that proxies
// have not answered is traced as it stands when Options.Patience is over. Where spans go is up to the Tracer, which is
// the caller's. One goroutine, the caller of Run, does all of it.
//
// # Guarantees
//
//   - A push is traced once its proxies have answered, with its stages inside: [TestPushesAreTraced].
package tracing
