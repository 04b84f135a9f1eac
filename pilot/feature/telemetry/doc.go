// Package telemetry is the feature of metrics and tracing, by the mesh configuration: the istio.stats filters, and the
// tracing of HTTP connection managers. Telemetry objects are not translated yet. The package is pure.
package telemetry
