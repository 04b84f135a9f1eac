// Package logs is the binaries' logger: a slog.Handler that writes Istio's line layout or JSON, and a level for
// each scope.
//
// A scope is the attribute "scope" that a component's logger carries: logger.With("scope", "ads"). Levels is safe for
// concurrent use and is the only state; a change of it takes effect at once, for loggers that were made before too. The
// package starts no goroutine, opens no file and keeps no log.
package logs
