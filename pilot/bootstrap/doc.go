// Package bootstrap builds the server from its Options and runs it: ingest, translation, the DiscoveryServer, the HTTP
// servers, readiness and the graceful stop. It is the one place that knows every part; no part knows it.
//
// What runs is a list of named startFuncs, in order. A synchronous one returns once its part has started; an
// asynchronous one runs in a goroutine of its own until the server stops. The first error stops the server.
//
// Commits are made by one goroutine at a time: by that of the source whose changes complete what is awaited, and then
// by the throttle's.
//
// It does not read flags, the environment or signals: that is cmd's.
package bootstrap
