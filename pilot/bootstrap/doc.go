// Package bootstrap builds the server from its Options and runs it: sources, registries, snapshots, translation, the
// DiscoveryServer, the HTTP servers, readiness and the graceful stop. It is the one place that knows every part; no
// part knows it.
//
// What runs is a list of named startFuncs, in order. A synchronous one returns once its part has started; an
// asynchronous one runs in a goroutine of its own until the server stops. The first error stops the server.
//
// State: the world, which turns changes into snapshots, belongs to the goroutine of the throttle, that alone commits;
// before there is a throttle, to that of the source which brings the first snapshot. What others read of it (the
// snapshot, the objects, the findings) is published whole.
//
// It does not read flags, the environment or signals: that is cmd's.
package bootstrap
