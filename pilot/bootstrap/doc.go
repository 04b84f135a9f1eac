// Package bootstrap builds the server from its Options and runs it: ingest, translation, the DiscoveryServer, the HTTP
// servers, readiness and the graceful stop. It is the one place that knows every part; no part knows it.
//
// What runs is a components.List. Steps of the start end one after another; Components run in the background until the
// server stops. The first error stops the server. A new part of the server is a file, and a line in parts.go.
//
// Commits are made by one goroutine at a time. The first runs in the goroutine of the source that synced last, and all
// later ones run in the throttle's.
//
// It does not read flags, the environment or signals: that is cmd's.
package bootstrap
