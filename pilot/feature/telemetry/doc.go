// Package telemetry translates the metrics and tracing settings of the mesh configuration. It decides whether proxies
// get the istio.stats filter, which package translate makes, and makes the tracing of HTTP connection managers.
// Telemetry objects are not translated yet. The package is pure.
package telemetry
