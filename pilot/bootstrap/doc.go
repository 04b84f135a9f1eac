// Package bootstrap builds the server from its Options and runs it: ingest, translation, the DiscoveryServer, the HTTP
// servers, readiness and the graceful stop. It is the one place that knows every part; no part knows it.
//
// What runs is a list of named startFuncs, in order. A synchronous one returns once its part has started; an
// asynchronous one runs in a goroutine of its own until the server stops. The first error stops the server.
//
// Commits are made by one goroutine at a time. The first runs in the goroutine of the source that synced last, and all
// later ones run in the throttle's.
//
// It does not read flags, the environment or signals: that is cmd's.
package bootstrap
